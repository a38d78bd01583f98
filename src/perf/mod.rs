//! `pumice perf`: measures the performance of the device, and verifies every byte.
//!
//! [`pumice_perf`] measures; this module has the options, the processes of a loop, and the reports. In a
//! loop, a server and a client are child processes of the command.

mod measure;
mod netns;
mod options;
mod pairs;
mod process;
mod report;

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};

use pumice_device::platform::error::printable;
use pumice_perf::{Server, machine};

use crate::outcome::{CommandError, CommandResult, Outcome};
use netns::Namespaces;
pub(crate) use options::PerfOptions;
use options::{ClientOptions, EndSettings, LOOPBACK_ADDRESSES, LoopOptions, PerfRole, ServerOptions};
use process::{EndTask, Listening, OutputReader, PerfEnd};
use report::in_words;

/// Runs the command.
pub(crate) fn run(options: &PerfOptions, out: &mut dyn Write) -> CommandResult {
    let outcome = match &options.role {
        PerfRole::Server(options) => run_server(options),
        PerfRole::Client(options) => run_client(options, out),
        PerfRole::Loop(options) => run_loop(options, out),
        PerfRole::End(options) => run_end(&options.task, out),
    };
    outcome.map_err(CommandError::Failed)
}

fn run_server(options: &ServerOptions) -> Result<Outcome, String> {
    let everywhere = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let at = SocketAddr::new(options.addr.unwrap_or(everywhere), options.oob_port);
    let server = listen(at, options.addr, None)?;
    note(&format!(
        "serving clients on TCP port {}, by the wire that each client asks for; Ctrl-C ends it",
        options.oob_port
    ));
    if options.once {
        server.serve_one().map_err(|error| in_words(&error))?;
        return Ok(Outcome::Good);
    }
    let error = server.serve(&mut |error| note(&format!("pumice: {}", in_words(error))));
    Err(in_words(&error))
}

fn run_client(options: &ClientOptions, out: &mut dyn Write) -> Result<Outcome, String> {
    let plans = options.test.described(options.raw, None)?;
    let connect = || measure::reach(&options.host, options.oob_port);
    measure::measure(&plans, &options.end, None, &connect, out)?;
    Ok(Outcome::Good)
}

fn run_loop(options: &LoopOptions, out: &mut dyn Write) -> Result<Outcome, String> {
    let link_mtu = options.netns.then_some(options.link_mtu);
    let plans = options.test.plans(link_mtu)?;
    if let Some(count) = options.pairs {
        return pairs::run(count, options, out);
    }
    let namespaces = if options.netns { Some(Namespaces::create(options.link_mtu)?) } else { None };
    let wrappers = namespaces.as_ref().map_or([vec![], vec![]], |made| [made.wrapper(0), made.wrapper(1)]);
    let defaults = match &namespaces {
        Some(_) => netns::ADDRESSES,
        None => LOOPBACK_ADDRESSES,
    };
    let [own, peer] = options.addresses(defaults)?;
    let settings = EndSettings { addr: Some(own), ..options.end.clone() };
    let [own_core, peer_core] = machine::two();
    let [own_wrapper, peer_wrapper] = wrappers;
    let serve = EndTask::Serve { address: peer, core: peer_core };
    let mut server_end = PerfEnd::start(&serve, &peer_wrapper, OutputReader::Parent)?;
    let Listening { at } = server_end.read_message()?;
    let measure = EndTask::Measure { server: at, plans, settings, cores: [own_core, peer_core] };
    let good = PerfEnd::start(&measure, &own_wrapper, OutputReader::User)?.wait()?;
    // The measuring end has printed any failure.
    Ok(if good { Outcome::Good } else { Outcome::Bad })
}

fn run_end(task: &str, out: &mut dyn Write) -> Result<Outcome, String> {
    let task = serde_json::from_str(task).map_err(|_| "this is for \"pumice perf loop\" only".to_owned())?;
    match task {
        EndTask::Serve { address, core } => {
            process::end_with_parent();
            let server = listen(SocketAddr::new(address, 0), Some(address), core)?;
            let at = server.local_addr().map_err(|error| error.to_string())?;
            pairs::write_message(&Listening { at }, out)?;
            // The clients receive the error, and print it.
            return Err(in_words(&server.serve(&mut |_| {})));
        }
        EndTask::Measure { server, plans, settings, cores: [core, second] } => {
            process::end_with_parent();
            machine::pin(core);
            measure::measure(&plans, &settings, second, &|| connect(server), out)?;
        }
        EndTask::Exchange { server, plan, settings } => {
            pairs::exchange(connect(server)?, &plan, &settings, out)?
        }
    }
    Ok(Outcome::Good)
}

fn connect(server: SocketAddr) -> Result<TcpStream, String> {
    TcpStream::connect(server).map_err(|error| format!("the other process cannot be reached: {error}"))
}

/// Starts a server whose device has this address, and whose thread is on this core.
fn listen(at: SocketAddr, address: Option<IpAddr>, core: Option<usize>) -> Result<Server, String> {
    Server::bind(at, pumice_perf::ServerOptions { address, core, wording: in_words }).map_err(|error| {
        format!("TCP port {} cannot be listened on: {error}; choose another with --oob-port", at.port())
    })
}

/// Prints a sentence on standard error; a closed standard error is no failure.
fn note(sentence: &str) {
    let _ = writeln!(io::stderr(), "{}", printable(sentence));
}
