//! The role "bare": a process that has the port and nothing else.

use std::io::BufRead;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::time::Duration;

use pumice_device::platform::clock::Clock;
use pumice_device::port::{Port, ProcessGroup, ReceivedBatch, wait_readable};
use pumice_device::sharing::{SharedPort, port_processes};
use pumice_transport::path::Flow;
use pumice_transport::wire::ProcessIndex;

use crate::child::{config, say};
use crate::fleet::{ChildProcess, Scene};

pub(crate) fn run() {
    let mut port = match SharedPort::open(&config()) {
        Ok(port) => Some(port),
        Err(error) => return say(&format!("refused {error}")),
    };
    say(&format!("index {}", port.as_ref().map_or(0, |port| port.process().value())));
    let clock = Clock::monotonic();
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        match line.as_str() {
            // Looks at the port so often, and takes so many packets at least.
            line if line.starts_with("look ") => {
                say(&format!("done {}", take(port.as_mut(), &clock, number(line), 0)))
            }
            line if line.starts_with("take ") => {
                say(&format!("done {}", take(port.as_mut(), &clock, 2, number(line))))
            }
            "fork-and-drop" => {
                // SAFETY: the child only drops the port and leaves.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    drop(port.take());
                    // SAFETY: ends this process.
                    unsafe { libc::_exit(0) };
                }
                let mut status = 0;
                // SAFETY: the status is a live C int.
                assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
                assert_eq!(status, 0);
                say("done");
            }
            "fork-and-stay" => {
                // SAFETY: the child only waits.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    // Not the pipe to the parent: its end is how the parent sees that this process ended.
                    // SAFETY: the child uses neither; it waits until it is killed.
                    unsafe {
                        libc::close(1);
                        libc::close(2);
                        libc::prctl(libc::PR_SET_PDEATHSIG, 0);
                        loop {
                            libc::pause();
                        }
                    }
                }
                say(&format!("done {child}"));
            }
            "registry" => say(&format!("done {}", port.as_ref().unwrap().registry().display())),
            "sharers" => {
                let indices: Vec<String> = port_processes(4791, None)
                    .unwrap()
                    .iter()
                    .map(|sharer| sharer.process().to_string())
                    .collect();
                say(&format!("done {}", indices.join(" ")));
            }
            "notice" => say(&format!("done {}", port.as_ref().unwrap().notice().unwrap_or_default())),
            "receive" => say(&format!("done {}", crate::receive(port.as_mut().unwrap()))),
            question if question.starts_with("forward ") => {
                let index = question["forward ".len()..].parse().unwrap();
                say(&format!("done {}", forward(port.as_mut().unwrap(), index)));
            }
            "quit" => return,
            other => panic!("{other}?"),
        }
    }
}

fn number(line: &str) -> usize {
    line.split(' ').nth(1).and_then(|number| number.parse().ok()).expect("a number")
}

/// Takes packets until `least` have come and the port was found empty `looks` times; how many came.
fn take(port: Option<&mut SharedPort>, clock: &Clock, mut looks: usize, least: usize) -> usize {
    let port = port.expect("the port");
    let mut count = 0;
    while looks > 0 || count < least {
        let more = port.receive(clock.now_ns(), &mut |received| {
            count += received.bytes.chunks(received.segment_bytes).count();
        });
        if !more && looks > 0 {
            looks -= 1;
        } else if !more {
            assert!(wait_readable(&port.descriptors(), None, Some(Duration::from_secs(60))).unwrap());
            port.woken();
        }
    }
    count
}

/// Hands a packet for a process index to its process.
fn forward(port: &mut SharedPort, index: u8) -> bool {
    let address = port.medium().address();
    let flow = Flow { source: address, destination: address, source_port: 4791, destination_port: 4791 };
    let mut bytes = [0; 16];
    bytes[5] = index;
    port.forward(
        ProcessIndex::new(index),
        &ReceivedBatch {
            flow,
            traffic_class: 0,
            hop_limit: 64,
            segment_bytes: 16,
            bytes: &bytes,
            has_icrc: true,
        },
    )
}

/// A process in this role.
pub(crate) struct Bare {
    process: ChildProcess,
    index: u8,
}

impl Bare {
    pub(crate) fn start(scene: &Scene) -> Bare {
        let mut process = ChildProcess::start(None, scene, "bare");
        let index = process.read_reply("index").parse().unwrap();
        Bare { process, index }
    }

    pub(crate) fn index(&self) -> u8 {
        self.index
    }

    pub(crate) fn ask(&mut self, question: &str) -> String {
        self.process.say(question);
        self.process.read_reply("done")
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    /// Stops it, as a debugger would.
    pub(crate) fn stop(&mut self) {
        self.process.stop();
    }

    pub(crate) fn resume(&mut self) {
        self.process.resume();
    }

    pub(crate) fn quit(&mut self) {
        self.process.quit();
    }
}

/// This role, run by `prefix`.
pub(crate) fn command(prefix: Command, scene: &Scene) -> ChildProcess {
    ChildProcess::start(Some(prefix), scene, "bare")
}

/// Why a process did not get the port; nothing if it could not even be started.
pub(crate) fn refusal(mut process: ChildProcess) -> Option<String> {
    let answer = process.answer()?;
    let Some(refusal) = answer.strip_prefix("refused ") else { panic!("not refused: {answer}") };
    Some(refusal.to_owned())
}

/// A process that is not a child of this one.
pub(crate) struct Stranger {
    handle: OwnedFd,
}

impl Stranger {
    pub(crate) fn new(pid: i32) -> Stranger {
        // SAFETY: no memory is involved.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        assert!(fd >= 0, "pidfd_open: {}", std::io::Error::last_os_error());
        // SAFETY: the descriptor was just made.
        Stranger { handle: unsafe { OwnedFd::from_raw_fd(fd as i32) } }
    }

    /// Kills it and waits until it has gone.
    pub(crate) fn kill(self) {
        drop(self);
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let null = std::ptr::null::<libc::siginfo_t>();
        // By its handle, which cannot mean another process.
        // SAFETY: the null pointer asks for the default information.
        unsafe {
            libc::syscall(libc::SYS_pidfd_send_signal, self.handle.as_raw_fd(), libc::SIGKILL, null, 0)
        };
        let _ = wait_readable(&[self.handle.as_raw_fd()], None, None);
    }
}
