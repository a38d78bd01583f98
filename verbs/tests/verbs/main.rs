//! The safe verbs, over the simulated fabric and over real UDP on loopback addresses.

mod asynchronous;
mod connections;
mod deaths;
mod errors;
mod events;
mod floods;
mod forks;
mod kit;
mod lifetime;
mod links;
mod messages;
mod numbered;
mod one_sided;
mod options;
mod planned;
#[path = "../../../transport/tests/cm/request.rs"]
mod request;
mod schedules;
mod shared;
mod topology;
mod waiting;
