//! Replicas that talk over real sockets and real TLS on loopback: who is let in, what a conversation guarantees, what a
//! peer that vanishes, lies or is slow does to others.

mod certificates;
mod conversations;
mod fleet;
mod flow;
mod frozen;
mod garbage;
mod keepalive;
mod raw;
mod refusals;
mod reload;
mod sizes;
mod tools;
