//! A program with tokio, for tests: a runtime of several threads, timers, TCP by loopback, channels, and work
//! that blocks.

#![allow(clippy::print_stdout, reason = "a program prints")]

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time;

const CLIENTS: usize = 4;
const MESSAGES: usize = 8;

fn main() -> std::io::Result<()> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(3).enable_all().build()?.block_on(run())
}

async fn run() -> std::io::Result<()> {
    let begun = Instant::now();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (sender, mut lines) = mpsc::channel(4);
    let server = tokio::spawn(async move {
        for connection in 0..CLIENTS {
            let (stream, _) = listener.accept().await?;
            tokio::spawn(echo(stream, connection, sender.clone()));
        }
        std::io::Result::Ok(())
    });
    let clients: Vec<_> = (0..CLIENTS).map(|number| tokio::spawn(client(address, number))).collect();
    while let Some(line) = lines.recv().await {
        println!("{line}");
    }
    server.await??;
    for client in clients {
        println!("{}", client.await??);
    }
    let blocking = tokio::task::spawn_blocking(|| {
        std::thread::sleep(Duration::from_millis(300));
        "blocked"
    });
    let first = tokio::select! {
        done = blocking => done?,
        () = time::sleep(Duration::from_millis(200)) => "slept",
    };
    println!("{first} after {} us", begun.elapsed().as_micros());
    let late = time::timeout(Duration::from_secs(60), std::future::pending::<()>()).await;
    println!("time out: {}", late.is_err());
    Ok(())
}

async fn echo(mut stream: TcpStream, connection: usize, sender: mpsc::Sender<String>) -> std::io::Result<()> {
    let mut bytes = [0; 16];
    for message in 0..MESSAGES {
        stream.read_exact(&mut bytes).await?;
        let _ =
            sender.send(format!("connection {connection}: message {message} of client {}", bytes[0])).await;
        stream.write_all(&bytes).await?;
    }
    Ok(())
}

async fn client(address: std::net::SocketAddr, number: usize) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let mut every = time::interval(Duration::from_millis(7 + number as u64));
    let mut bytes = [u8::try_from(number).unwrap_or(0); 16];
    for _ in 0..MESSAGES {
        every.tick().await;
        stream.write_all(&bytes).await?;
        stream.read_exact(&mut bytes).await?;
    }
    Ok(format!("client {number} is done"))
}
