//! The supervisor, for Linux on x86-64.

mod alarm_calls;
mod alarms;
mod chance;
mod clock;
mod corrected;
mod deadlock;
mod delivery;
mod devices;
mod facts;
mod files;
mod filter;
mod futex;
mod machine;
mod memory;
mod network;
mod processes;
mod processor;
mod program;
mod readiness;
mod rows;
mod schedule;
mod serve;
mod start;
mod stop;
mod supervisor;
mod system;
mod threads;
mod time;
mod timers;
mod tracee;
mod tsc;
mod waits;

pub(crate) use supervisor::run;
