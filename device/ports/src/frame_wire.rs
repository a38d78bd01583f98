//! A way for whole Ethernet frames.

use std::os::fd::RawFd;

/// Why a frame was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendFrameError {
    /// It is longer than the interface carries.
    TooLong,
    /// It is lost: there is no room, or the interface is down.
    Lost,
}

/// A way to the network for Ethernet frames, from the destination address on and without a checksum.
pub trait FrameWire: Send {
    /// Sends a frame as it is.
    ///
    /// # Errors
    /// It was not sent.
    fn send(&mut self, frame: &[u8]) -> Result<(), SendFrameError>;

    /// The next frame that arrived, at the beginning of `into`: its length. `None`: there is none now.
    fn receive(&mut self, into: &mut [u8]) -> Option<usize>;

    /// Frames are wanted from now on, or no more; those to any address.
    fn listen(&mut self, listens: bool);

    /// Whether what is sent here also arrives here.
    fn returns_own_frames(&self) -> bool;

    /// What to poll(2) for readability.
    fn descriptor(&self) -> Option<RawFd>;
}
