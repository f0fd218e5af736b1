//! The whole operator against real servers: kube-apiserver, etcd, Redis, `git http-backend`. One control plane per test.

mod branches;
mod cases;
mod cluster_providers;
mod cluster_rules;
mod contract;
mod crashes;
mod deletions;
mod editing;
mod embedded;
mod events;
mod faults;
mod first_light;
mod foreign_files;
mod manifests;
mod messages;
mod owners;
mod people;
mod refusals;
mod secrets;
mod sentinels;
mod source_namespaces;
mod states;
mod support;
mod types;
mod watches;
