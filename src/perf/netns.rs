//! Two network namespaces with a veth pair between them.
//!
//! The namespaces have no names: each exists as long as a process in it, and that process ends with this one,
//! so that nothing is left behind in any case.

use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, Stdio};

use super::process::{OutputReader, PerfEnd};

/// Addresses of the two ends, from a block that is reserved for examples.
pub(crate) const ADDRESSES: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2))];

/// A pair of network namespaces.
#[derive(Debug)]
pub(crate) struct Namespaces {
    holders: [PerfEnd; 2],
}

impl Namespaces {
    /// Creates the namespaces and the veth pair.
    ///
    /// # Errors
    /// A sentence: not root, or a command failed.
    pub(crate) fn create(link_mtu: u16) -> Result<Namespaces, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("network namespaces need root: run as root, or leave out --netns".to_owned());
        }
        let namespaces = Namespaces { holders: [hold()?, hold()?] };
        let [first, second] = namespaces.holders.each_ref().map(|holder| holder.id().to_string());
        let mtu = link_mtu.to_string();
        // The pair is made inside of the first namespace, so that its names cannot collide with those of the
        // machine.
        namespaces.run(
            0,
            &[
                "ip", "link", "add", "veth0", "mtu", &mtu, "type", "veth", "peer", "name", "veth0", "mtu",
                &mtu,
            ]
            .into_iter()
            .chain(["netns", &second])
            .collect::<Vec<_>>(),
        )?;
        let _ = first;
        for (index, address) in ADDRESSES.iter().enumerate() {
            namespaces.run(index, &["ip", "addr", "add", &format!("{address}/24"), "dev", "veth0"])?;
            namespaces.run(index, &["ip", "link", "set", "veth0", "up"])?;
            namespaces.run(index, &["ip", "link", "set", "lo", "up"])?;
        }
        Ok(namespaces)
    }

    /// Returns the beginning of a command that runs its arguments in one of the namespaces.
    pub(crate) fn wrapper(&self, index: usize) -> Vec<String> {
        let id = self.holders.get(index).map_or(0, PerfEnd::id);
        vec!["nsenter".to_owned(), format!("--net=/proc/{id}/ns/net"), "--".to_owned()]
    }

    fn run(&self, index: usize, arguments: &[&str]) -> Result<(), String> {
        let wrapper = self.wrapper(index);
        let (first, rest) = wrapper.split_first().ok_or("no command")?;
        let output = Command::new(first).args(rest).args(arguments).stdin(Stdio::null()).output();
        let what = arguments.join(" ");
        match output {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => {
                let stderr_text = String::from_utf8_lossy(&output.stderr);
                Err(format!("\"{what}\" failed: {}", stderr_text.trim()))
            }
            Err(error) => {
                Err(format!("\"{first} … {what}\" cannot be run: {error}; install util-linux and iproute2"))
            }
        }
    }
}

/// Starts a process in a namespace of its own that waits for the end of its input.
fn hold() -> Result<PerfEnd, String> {
    let mut command = Command::new("unshare");
    command.args(["--net", "--", "sh", "-c", "echo ready; exec cat"]);
    let mut holder = PerfEnd::spawn(command, OutputReader::Parent)?;
    match holder.line() {
        Ok(_) => Ok(holder),
        Err(_) => Err("no network namespace can be made here; containers often forbid it".to_owned()),
    }
}
