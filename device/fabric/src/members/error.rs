//! The errors of sharing a port.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use pumice_platform::udp::PortError;

/// A socket on the UDP port that is in the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    /// Address that the socket is bound to.
    pub address: IpAddr,
    /// User who opened the socket.
    pub uid: u32,
    /// Inode of the socket in /proc/net/udp; 0 for sockets of the kernel itself.
    pub inode: u64,
}

/// The reason why [`SharedPort::open`](crate::shared_port::SharedPort::open) failed.
#[derive(Debug)]
pub enum SharingError {
    /// The UDP port could not be opened, for a reason that has nothing to do with sharing.
    Port(PortError),
    /// A process that does not share has the UDP port.
    Taken {
        /// Address asked for.
        address: IpAddr,
        /// UDP port asked for.
        port: u16,
        /// Socket that has the port, where the system says so.
        holder: Option<Holder>,
        /// User that this process runs as.
        own_uid: u32,
    },
    /// A process of this user shares the port but is not in the registry.
    OtherRegistry {
        /// Address asked for.
        address: IpAddr,
        /// UDP port asked for.
        port: u16,
        /// Registry of this process.
        registry: PathBuf,
    },
    /// All 254 process indices are in use for an address.
    Full {
        /// Path of the registry.
        registry: PathBuf,
        /// Address asked for.
        address: IpAddr,
    },
    /// The registry stayed locked.
    Locked {
        /// Path of the registry.
        registry: PathBuf,
        /// Process that is stopped while it has the registry open, and so may hold the lock.
        stopped: Option<u32>,
        /// Number of other processes that have the registry open.
        others: usize,
        /// Time that this process waited.
        waited: Duration,
    },
    /// The folder or the file of the registry may be changed by another user, or is not what a registry
    /// needs.
    Untrusted {
        /// Path of the folder or file.
        path: PathBuf,
        /// Description of the problem.
        problem: String,
    },
    /// No folder on this host is fit for the registry.
    NoFolder {
        /// The error for the folder that was tried first.
        first: Box<SharingError>,
    },
    /// The operating system refused an operation.
    Os {
        /// Operation that failed, as words for the message.
        step: &'static str,
        /// File that the operation was on, if it was on one.
        path: Option<PathBuf>,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A shared port needs a number: port 0 would give each process another one.
    NoPort,
}

impl SharingError {
    /// Returns the errno that verbs return for this error; positive.
    pub fn errno(&self) -> i32 {
        let os = |error: &io::Error| error.raw_os_error().unwrap_or(libc::EIO);
        match self {
            Self::Taken { .. } | Self::OtherRegistry { .. } | Self::Port(PortError::Taken { .. }) => {
                libc::EADDRINUSE
            }
            Self::Port(PortError::NotLocal { .. }) => libc::EADDRNOTAVAIL,
            Self::Port(PortError::NotPermitted { .. }) => libc::EACCES,
            Self::Port(PortError::NoFamily { .. }) => libc::EAFNOSUPPORT,
            Self::Port(PortError::Socket { source, .. }) | Self::Os { source, .. } => os(source),
            Self::Full { .. } => libc::EUSERS,
            Self::Locked { .. } => libc::EBUSY,
            Self::Untrusted { .. } => libc::EPERM,
            Self::NoFolder { first } => first.errno(),
            Self::NoPort => libc::EINVAL,
        }
    }
}

impl fmt::Display for SharingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(error) => error.fmt(f),
            Self::Taken { address, port, holder, own_uid } => {
                taken(f, *address, *port, holder.as_ref(), *own_uid)
            }
            Self::OtherRegistry { address, port, registry } => write!(
                f,
                "UDP port {port} on {address} is in use by a process of this user that is not in the \
                registry {}: it has \
                 another /tmp or another XDG_RUNTIME_DIR, as in another container of the same network; set \
                 XDG_RUNTIME_DIR \
                 of all processes to one folder of this user (mode 0700) that all of them see, or stop that \
                 process (see \
                 `ss -lunp sport = {port}`)",
                registry.display()
            ),
            Self::Full { registry, address } => {
                let whose = if address.is_unspecified() {
                    "by devices with any address; stop a process, give the device one address".to_owned()
                } else {
                    format!(
                        "by devices that get packets to {address}, or by 16 devices each; stop a process, \
                         give the device another address"
                    )
                };
                let registry = registry.display();
                write!(
                    f,
                    "all 254 process indices in {registry} are in use {whose}, or use a network namespace \
                     of its own"
                )
            }
            Self::Locked { registry, stopped: Some(pid), .. } => write!(
                f,
                "the registry {} stays locked, and process {pid}, which has it open, is stopped: continue \
                it (kill -CONT {pid}) \
                 or kill it",
                registry.display()
            ),
            Self::Locked { registry, stopped: None, others, waited } => write!(
                f,
                "the registry {} was locked by others for {} s; {others} other processes have it open, and \
                none of them is \
                 stopped: this machine is too busy, try again",
                registry.display(),
                waited.as_secs()
            ),
            Self::Untrusted { path, problem } => {
                write!(f, "{} cannot be used as the registry of shared ports: {problem}", path.display())
            }
            Self::Os { step, path: Some(path), source } => {
                write!(f, "cannot {step} {}: {source}", path.display())
            }
            Self::Os { step, path: None, source } => write!(f, "cannot {step}: {source}"),
            Self::NoFolder { first } => write!(
                f,
                "there is no folder for what the processes of this user share: {first}; set XDG_RUNTIME_DIR \
                of all of \
                 them to a folder that only this user may enter"
            ),
            Self::NoPort => f.write_str("a shared UDP port needs a number, 4791 for RoCE"),
        }
    }
}

fn taken(
    f: &mut fmt::Formatter<'_>,
    address: IpAddr,
    port: u16,
    holder: Option<&Holder>,
    own_uid: u32,
) -> fmt::Result {
    write!(f, "UDP port {port} on {address} is taken by ")?;
    match holder {
        None => write!(f, "a socket that /proc/net/udp does not show (see `ss -lunp sport = {port}`)")?,
        Some(holder) => {
            match holder {
                Holder { inode: 0, .. } => f.write_str("the kernel, probably rdma_rxe (see `rdma link`)")?,
                Holder { uid, .. } if *uid == own_uid => {
                    write!(f, "a process of this user (uid {uid}) that does not share it")?;
                }
                Holder { uid, .. } => write!(
                    f,
                    "a process of user {uid}, and processes share the port only with those of the same user \
                     (this one runs as uid {own_uid})"
                )?,
            }
            if holder.address != address {
                write!(f, ", on {}", holder.address)?;
            }
        }
    }
    f.write_str("; stop it, choose another local address, or use a network namespace of its own")
}

impl std::error::Error for SharingError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Port(error) => Some(error),
            Self::NoFolder { first } => Some(first),
            Self::Os { source, .. } => Some(source),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_holder_and_the_remedy() {
        let address = IpAddr::from([127, 0, 0, 1]);
        let error = |holder| SharingError::Taken { address, port: 4791, holder, own_uid: 1000 };
        let other = error(Some(Holder { address, uid: 7, inode: 12 }));
        assert_eq!(other.errno(), libc::EADDRINUSE);
        let text = other.to_string();
        assert!(text.starts_with("UDP port 4791 on 127.0.0.1 is taken by a process of user 7,"), "{text}");
        assert!(text.contains("this one runs as uid 1000") && text.contains("; stop it"), "{text}");
        let any = IpAddr::from([0, 0, 0, 0]);
        let rxe = error(Some(Holder { address: any, uid: 0, inode: 0 })).to_string();
        assert!(rxe.contains("rdma_rxe") && rxe.contains(", on 0.0.0.0"), "{rxe}");
        let own = error(Some(Holder { address, uid: 1000, inode: 3 })).to_string();
        assert!(own.contains("that does not share it"), "{own}");
        assert!(error(None).to_string().contains("does not show"));
    }

    #[test]
    fn only_a_process_that_is_stopped_is_called_so() {
        let locked = |stopped| SharingError::Locked {
            registry: PathBuf::from("/tmp/r"),
            stopped,
            others: 12,
            waited: Duration::from_secs(61),
        };
        let busy = locked(None).to_string();
        assert!(busy.contains("for 61 s") && busy.contains("12 other processes"), "{busy}");
        let stopped = locked(Some(77)).to_string();
        assert!(stopped.contains("process 77") && stopped.contains("kill -CONT 77"), "{stopped}");
        assert_eq!(locked(None).errno(), libc::EBUSY);
    }
}
