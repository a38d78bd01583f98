//! A key-value service with futures: one task for each connection, on a tokio runtime. A client connects by
//! address, writes its request into the server's memory, and awaits the answer, with a timeout of tokio's.
//!
//! ```sh
//! cargo run -p pumice-verbs --example async_tokio
//! ```

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pumice_verbs::asynchronous::{AsyncCompletionQueue, AsyncConnection, AsyncListener};
use pumice_verbs::{
    Access, ConnectionParams, ConnectionRequest, Device, DeviceOptions, RcQueuePair, RecvRequest, Result,
    SendRequest, transport::Rc,
};
use tokio::runtime::Builder;
use tokio::time::timeout;

const LIMIT: Duration = Duration::from_secs(30);
const CLIENTS: u8 = 4;
const REQUEST_BYTES: usize = 64;

type Values = Arc<Mutex<HashMap<String, String>>>;

fn open(address: [u8; 4]) -> Result<Device> {
    Device::open(DeviceOptions::new().addresses([IpAddr::from(address)]))
}

/// What both ends of a connection need: a queue pair, its completions, and memory for a message.
struct ConnectionEnd {
    cq: AsyncCompletionQueue,
    qp: RcQueuePair,
    memory: pumice_verbs::MemoryRegion,
}

impl ConnectionEnd {
    fn new(device: &Device) -> Result<ConnectionEnd> {
        let domain = device.protection_domain()?;
        let cq = AsyncCompletionQueue::new(device, 16)?;
        let qp = RcQueuePair::builder(&domain, cq.queue(), cq.queue()).build()?;
        let memory = domain.allocate(REQUEST_BYTES, Access::LOCAL_WRITE)?;
        Ok(ConnectionEnd { cq, qp, memory })
    }

    fn ready_for_message(&self) -> Result<()> {
        self.qp.post_recv(&RecvRequest { wr_id: 1, sges: &[self.memory.slice(..)?] })
    }

    async fn message(&self) -> Result<String> {
        let arrived = self.cq.of(1).await?;
        let bytes = self.memory.to_vec(0, arrived.byte_len as usize)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    async fn send_message(&self, text: &str) -> Result<()> {
        self.qp.post_send(&SendRequest::send(&[]).inline(text.as_bytes()).wr_id(2).signaled())?;
        self.cq.of(2).await.map(drop)
    }
}

/// Serves one client: "set KEY VALUE" or "get KEY", until it disconnects.
async fn serve(device: Device, request: ConnectionRequest, values: Values) -> Result<()> {
    let end = ConnectionEnd::new(&device)?;
    end.ready_for_message()?;
    let accepted = request.accept(&end.qp, &ConnectionParams::default(), &())?;
    let connection: AsyncConnection<Rc> = AsyncConnection::new(accepted)?;
    connection.established().await?;
    loop {
        let asked = tokio::select! {
            asked = end.message() => asked?,
            over = connection.disconnected() => return over,
        };
        let answer = {
            let mut values = values.lock().unwrap_or_else(PoisonError::into_inner);
            match asked.split(' ').collect::<Vec<_>>()[..] {
                ["set", key, value] => values.insert(key.to_owned(), value.to_owned()).unwrap_or_default(),
                ["get", key] => values.get(key).cloned().unwrap_or_default(),
                _ => "what?".to_owned(),
            }
        };
        end.ready_for_message()?;
        end.send_message(&answer).await?;
    }
}

/// Asks; the answers.
async fn run_client(device: Device, server: SocketAddr, requests: Vec<String>) -> Result<Vec<String>> {
    let end = ConnectionEnd::new(&device)?;
    let connection = AsyncConnection::connect(&end.qp, server, &ConnectionParams::default(), &()).await?;
    let mut answers = Vec::new();
    for request in requests {
        end.ready_for_message()?;
        end.send_message(&request).await?;
        answers.push(end.message().await?);
    }
    connection.disconnect()?;
    connection.disconnected().await?;
    Ok(answers)
}

/// What each client was answered.
pub(crate) fn run() -> std::result::Result<Vec<Vec<String>>, Box<dyn std::error::Error>> {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let server = open([127, 90, 4, 1])?;
        let listener = AsyncListener::new(server.listen(0)?)?;
        let address = SocketAddr::new([127, 90, 4, 1].into(), listener.port());
        let values = Values::default();
        tokio::spawn(async move {
            while let Ok(request) = listener.request().await {
                tokio::spawn(serve(server.clone(), request, Arc::clone(&values)));
            }
        });
        let device = open([127, 90, 4, 2])?;
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let requests = vec![format!("set key{number} stone{number}"), format!("get key{number}")];
                tokio::spawn(timeout(LIMIT, run_client(device.clone(), address, requests)))
            })
            .collect();
        let mut answers = Vec::new();
        for client in clients {
            answers.push(client.await???);
        }
        Ok(answers)
    })
}

#[expect(clippy::print_stdout, reason = "its result")]
fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    for (number, answers) in run()?.iter().enumerate() {
        println!("client {number}: {}", answers.join(", "));
    }
    Ok(())
}
