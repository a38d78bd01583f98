//! Runs a program in a world: `world SEED LOG PROGRAM ARGUMENT…`; "-" for no log.

use pumice_world::{Exit, WorldOptions, run};

fn main() {
    let mut arguments = std::env::args_os().skip(1);
    let seed = arguments.next().and_then(|text| text.to_str()?.parse().ok()).unwrap_or(1);
    let log = arguments.next().filter(|log| log != "-").map(Into::into);
    let mut options = WorldOptions::new(seed, arguments.collect());
    options.record = log;
    options.private_folders = vec!["/dev/shm".into(), "/tmp/pumice-0".into()];
    match run(&options) {
        Ok(ended) => {
            eprintln!("{}; {} events, {} ms", ended.certificate, ended.events, ended.virtual_ns / 1_000_000);
            std::process::exit(match ended.exit {
                Exit::Code(code) => code,
                Exit::Signal(signal) => 128 + signal,
            });
        }
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(125);
        }
    }
}
