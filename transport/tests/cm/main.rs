//! Communication management: messages of Linux byte for byte, every state with every event, pairs over
//! a network that loses, doubles and reorders, and crowds.

#[path = "../capture/mod.rs"]
mod capture;
mod chaos;
mod crowd;
mod golden;
mod kit;
mod ladder_active;
mod ladder_end;
mod ladder_listen;
mod ladder_passive;
mod ladder_sidr;
#[path = "../pair/link.rs"]
#[expect(dead_code, reason = "only its random numbers are used here")]
mod link;
mod noise;
mod pace;
#[path = "../../../fuzz/replay.rs"]
mod replay;
mod request;
mod script;
