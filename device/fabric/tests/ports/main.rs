//! Layers of ports, on a port that remembers what it sends.

mod fetch;
mod link;
