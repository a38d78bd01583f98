//! A greeting over a connection made by address: the server tells where its memory is when it accepts, the
//! client writes into it and disconnects.
//!
//! ```sh
//! cargo run -p pumice-verbs --example rdma_cm                        # both in one process, on two addresses
//! cargo run -p pumice-verbs --example rdma_cm -- server 127.0.0.1:7471     # or each in its own
//! cargo run -p pumice-verbs --example rdma_cm -- client 127.0.0.1:7471
//! ```

use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use pumice_verbs::{
    Access, CompletionQueue, Connection, ConnectionParams, Device, DeviceOptions, Listener, MemoryRegion,
    RcQueuePair, RemoteSlice, Result, SendRequest,
};

const LIMIT: Duration = Duration::from_secs(30);

/// What both sides need.
struct Peer {
    device: Device,
    cq: CompletionQueue,
    memory: MemoryRegion,
    qp: RcQueuePair,
}

fn side(address: IpAddr) -> Result<Peer> {
    let device = Device::open(DeviceOptions::new().addresses([address]))?;
    let domain = device.protection_domain()?;
    let cq = device.completion_queue(16)?;
    let memory = domain.allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    let qp = RcQueuePair::builder(&domain, &cq, &cq).build()?;
    Ok(Peer { device, cq, memory, qp })
}

/// Serves one client.
fn serve(side: &Peer, listener: &Listener) -> Result<String> {
    let request = listener.request(LIMIT)?;
    let length: u32 = request.private_data()?;
    if length as usize > side.memory.len() {
        request.reject(b"too long")?;
        return Ok(String::new());
    }
    let connection = request.accept(&side.qp, &ConnectionParams::default(), &side.memory.remote())?;
    connection.established(LIMIT)?;
    // What was written before the client disconnected is there.
    connection.disconnected(LIMIT)?;
    Ok(String::from_utf8_lossy(&side.memory.to_vec(0, length as usize)?).into_owned())
}

fn greet(side: &Peer, server: SocketAddr, greeting: &str) -> Result<()> {
    side.memory.write(0, greeting.as_bytes())?;
    let length = greeting.len() as u32;
    let connection = Connection::connect(&side.qp, server, &ConnectionParams::default(), &length, LIMIT)?;
    let remote: RemoteSlice = connection.private_data()?;
    let local = [side.memory.slice(..greeting.len())?];
    side.qp.post_send(&SendRequest::write(&local, remote).signaled())?;
    side.cq.wait_success(LIMIT)?;
    connection.disconnect()?;
    connection.disconnected(LIMIT)
}

pub(crate) fn run(arguments: &[String]) -> std::result::Result<String, Box<dyn std::error::Error>> {
    match arguments {
        [] => {
            let (server, client) = (side([127, 90, 5, 1].into())?, side([127, 90, 5, 2].into())?);
            let listener = server.device.listen(0)?;
            let address = SocketAddr::new([127, 90, 5, 1].into(), listener.port());
            let served = std::thread::spawn(move || serve(&server, &listener));
            greet(&client, address, "hello by address")?;
            Ok(served.join().map_err(|_| "the server panicked")??)
        }
        [role, address] if role == "server" => {
            let address: SocketAddr = address.parse()?;
            let server = side(address.ip())?;
            Ok(serve(&server, &Listener::bind(&server.device, address, Listener::BACKLOG)?)?)
        }
        [role, address] if role == "client" => {
            let address: SocketAddr = address.parse()?;
            greet(&side(address.ip())?, address, "hello from another process")?;
            Ok("greeted".to_owned())
        }
        _ => Err("usage: rdma_cm [server ADDRESS:PORT | client ADDRESS:PORT]".into()),
    }
}

#[expect(clippy::print_stdout, reason = "its result")]
fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(said) => {
            println!("{said}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("rdma_cm: {error}");
            ExitCode::FAILURE
        }
    }
}
