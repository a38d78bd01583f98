//! A wire for whole Ethernet frames.

use std::os::fd::RawFd;

/// The reason why a frame was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendFrameError {
    /// The frame is longer than the interface carries.
    TooLong,
    /// The frame is lost: there is no room, or the interface is down.
    Lost,
}

/// A wire to the network for Ethernet frames, from the destination address on and without a checksum.
pub trait FrameWire: Send {
    /// Sends a frame unchanged.
    ///
    /// # Errors
    /// Fails if the frame was not sent.
    fn send(&mut self, frame: &[u8]) -> Result<(), SendFrameError>;

    /// Receives the next frame that arrived, to the beginning of `into`, and returns its length; `None` if
    /// there is none now.
    fn receive(&mut self, into: &mut [u8]) -> Option<usize>;

    /// Starts or stops receiving frames, to any address.
    fn listen(&mut self, listens: bool);

    /// Reports whether frames that are sent here also arrive here.
    fn returns_own_frames(&self) -> bool;

    /// Returns the descriptor to poll(2) for readability.
    fn descriptor(&self) -> Option<RawFd>;
}
