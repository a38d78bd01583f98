//! Switches between the processes of this user: their state, in a file that the processes map.
//!
//! The file is in the folder where the processes meet, one for each topology and network namespace. Its name
//! contains the topology's fingerprint, so a process with other switches has another file. Its contents are
//! not trusted, like those of all memory that is shared ([`SwitchedPort`](crate::SwitchedPort)
//! validates them).

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::{PORT_WORDS, SwitchWords, Switching};
use pumice_model::network::topology::Topology;

use crate::files::{folder, runtime_folders};
use crate::members::error::SharingError;
use crate::members::process;
use crate::system::SharedMemory;

/// Returns the name of the file. Another layout of its words has another name.
fn file_name(topology: &Topology) -> String {
    format!("switch1-{:016x}-net{}", topology.fingerprint(), process::network_namespace())
}

struct Mapped(SharedMemory);

impl SwitchWords for Mapped {
    fn words(&self) -> &[AtomicU64] {
        self.0.words()
    }
}

/// Opens the switches of a topology, shared by all processes of this user that name the same topology. Their
/// state is created if it does not exist, and stays when the last process has gone.
///
/// # Errors
/// See [`SharingError`].
pub fn switches(topology: &Arc<Topology>) -> Result<Switching, SharingError> {
    let (folder, name) = (runtime_folders::runtime_folder()?, file_name(topology));
    let file = folder::open(&folder, &name)?;
    let mapped = SharedMemory::map(&file, topology.link_count() * PORT_WORDS);
    let mapped = mapped.map_err(|source| SharingError::Os {
        step: "map the file",
        path: Some(folder.join(&name)),
        source,
    })?;
    Ok(Switching { topology: Arc::clone(topology), words: Arc::new(Mapped(mapped)) })
}
