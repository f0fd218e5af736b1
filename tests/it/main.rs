//! The whole operator against real servers: kube-apiserver, etcd, Redis, `git http-backend`. One control plane per test.

mod branches;
mod crashes;
mod editing;
mod embedded;
mod faults;
mod first_light;
mod foreign_files;
mod owners;
mod people;
mod refusals;
mod secrets;
mod support;
mod types;
mod watches;
