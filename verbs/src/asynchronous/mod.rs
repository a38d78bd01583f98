//! Futures for completions, events and connections, to wait without blocking a thread.
//!
//! The futures depend on no runtime: they run on tokio, smol, or any other executor. On a real network a
//! thread of the crate `async-io` sleeps on the file descriptors and wakes the tasks; the device's background
//! thread receives and sends packets meanwhile. A future that is dropped has taken nothing: what it waited
//! for is still there.
//!
//! On a simulated device a future that waits lets virtual time pass, one thing at a time, and other tasks run
//! in between. So a run on an executor of one thread is the same each time. A future ends with
//! [`VerbsError::Stalled`](crate::VerbsError::Stalled) if nothing is left to happen, and other tasks have not
//! changed that; no task of such a run may wait for real time.
//!
//! ```
//! use pumice_verbs::asynchronous::AsyncCompletionQueue;
//! use pumice_verbs::{FabricConfig, RcQueuePair, RecvRequest, Result, SendRequest, Simulation};
//!
//! # fn main() -> Result<()> {
//! # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
//! # runtime.block_on(async {
//! let simulation = Simulation::new(FabricConfig::default());
//! let side = |address: &str| -> Result<_> {
//!     let device = simulation.device(address.parse().unwrap())?;
//!     let domain = device.protection_domain()?;
//!     let cq = AsyncCompletionQueue::new(&device, 16)?;
//!     let qp = RcQueuePair::builder(&domain, cq.queue(), cq.queue()).build()?;
//!     Ok((qp, cq))
//! };
//! let (ping, ping_cq) = side("10.0.0.1")?;
//! let (pong, pong_cq) = side("10.0.0.2")?;
//! ping.connect(&pong.endpoint(), &Default::default())?;
//! pong.connect(&ping.endpoint(), &Default::default())?;
//! pong.post_recv(&RecvRequest { wr_id: 1, sges: &[] })?;
//! ping.post_send(&SendRequest::send(&[]).wr_id(7).signaled())?;
//! let (sent, received) = tokio::join!(ping_cq.of(7), pong_cq.success());
//! assert_eq!((sent?.wr_id, received?.wr_id), (7, 1));
//! # Ok(())
//! # })
//! # }
//! ```

mod completion;
mod connection;
mod event;

pub use completion::AsyncCompletionQueue;
pub use connection::{AsyncConnection, AsyncListener};
pub use event::{AsyncCompletionChannel, AsyncEvents};
