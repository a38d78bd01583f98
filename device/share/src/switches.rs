//! Switches between the processes of this user: their state, in a file that the processes map.
//!
//! The file is in the folder where the processes meet, one for each topology and network namespace. Its name
//! says the topology's fingerprint, so a process with other switches has another file. What is in it is a
//! claim, as of all memory that is shared ([`SwitchedPort`](pumice_ports::SwitchedPort) takes it so).

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use pumice_ports::{PORT_WORDS, SwitchWords, Switching, Topology};

use super::system::SharedMemory;
use super::{ShareError, folder, process, runtime_folders};

/// The name of the file. Another layout of its words has another one.
fn file_name(topology: &Topology) -> String {
    format!("switch1-{:016x}-net{}", topology.fingerprint(), process::network_namespace())
}

struct Mapped(SharedMemory);

impl SwitchWords for Mapped {
    fn words(&self) -> &[AtomicU64] {
        self.0.words()
    }
}

/// The switches of a topology, as all processes of this user have them that name the same one. Their state
/// is made if it is not there, and stays when the last process has gone.
///
/// # Errors
/// See [`ShareError`].
pub fn switches(topology: &Arc<Topology>) -> Result<Switching, ShareError> {
    let (folder, name) = (runtime_folders::runtime_folder()?, file_name(topology));
    let file = folder::open(&folder, &name)?;
    let mapped = SharedMemory::map(&file, topology.link_count() * PORT_WORDS);
    let mapped = mapped.map_err(|source| ShareError::Os {
        step: "map the file",
        path: Some(folder.join(&name)),
        source,
    })?;
    Ok(Switching { topology: Arc::clone(topology), words: Arc::new(Mapped(mapped)) })
}
