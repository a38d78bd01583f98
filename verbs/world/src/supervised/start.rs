//! Starts the first process of a world, in namespaces of its own.
//!
//! Between fork and exec there is one thread, and it uses no resource that another thread might have locked;
//! the memory that it needs was allocated before.

use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::sys::personality::{self, Persona};
use nix::sys::signal::{SigHandler, SigSet, Signal};
use nix::unistd::{ForkResult, Pid, fork, getgid, getuid, pipe, read, write};
use seccompiler::BpfProgram;

use super::machine::{EMPTY_FOLDERS, SHARED_MEMORY, SYSTEM, TEMPORARY, machine_files};
use crate::error::WorldError;
use crate::options::WorldOptions;

/// Environment variables of every world. The C library registers no restartable sequences, which depend on
/// processors. It searches libraries as on a processor without AVX2, which old and new versions name
/// differently, and without AVX-512, for which glibc before 2.37 has folders on Intel's processors. Python
/// leaves no compiled files, which the next run would find.
const ENVIRONMENT: [(&str, &str); 2] = [
    ("GLIBC_TUNABLES", "glibc.pthread.rseq=0:glibc.cpu.hwcaps=-AVX2,-AVX2_Usable,-AVX512CD"),
    ("PYTHONDONTWRITEBYTECODE", "1"),
];
/// Variable that names the folder of temporary files.
const TMPDIR: &str = "TMPDIR";
/// Variable with options for pytest, and those that come before the user's: pytest's cache is removed with
/// the world.
const PYTEST_OPTIONS: &str = "PYTEST_ADDOPTS";
const PYTEST_CACHE: &str = "-o cache_dir=/dev/shm/tmp/pytest-cache";

/// Exit codes of a first process that cannot begin, as shells use them.
pub(crate) const NOT_FOUND: i32 = 127;
pub(crate) const NOT_STARTED: i32 = 126;
/// Exit code of a first process that may have no filter of calls.
pub(crate) const NO_FILTER: i32 = 125;

/// A first process that waits for its tracer.
pub(crate) struct StartedProgram {
    /// Process that creates the namespaces, or the first process itself.
    pub(crate) outer: Pid,
    /// Pipe: a byte lets the process continue.
    go: OwnedFd,
}

impl StartedProgram {
    /// Lets the process continue, because it is traced now.
    pub(crate) fn go(self) -> Result<(), WorldError> {
        write(&self.go, b"!").map_err(|errno| failed("letting the first process go", errno))?;
        Ok(())
    }
}

fn failed(what: &'static str, errno: Errno) -> WorldError {
    WorldError::Start { what, error: errno.into() }
}

/// Starts the first process.
pub(crate) fn start(options: &WorldOptions, filter: &BpfProgram) -> Result<StartedProgram, WorldError> {
    let command = PreparedStart::new(options)?;
    let (wait, go) = pipe().map_err(|errno| failed("making a pipe", errno))?;
    // SAFETY: the child makes only system calls until it executes another program.
    match unsafe { fork() }.map_err(|errno| failed("making a process", errno))? {
        ForkResult::Parent { child } => Ok(StartedProgram { outer: child, go }),
        ForkResult::Child => {
            drop(go);
            let mut byte = [0];
            let is_traced = read(&wait, &mut byte) == Ok(1);
            drop(wait);
            if is_traced {
                outer(&command, filter);
            }
            exit(NOT_STARTED)
        }
    }
}

/// The program, with everything needed to start it.
struct PreparedStart {
    /// Candidates for the path of the program, along PATH.
    paths: Vec<CString>,
    arguments: Vec<CString>,
    environment: Vec<CString>,
    /// Environment if the world has a folder of temporary files of its own.
    environment_inside: Vec<CString>,
    /// Folders that are empty in every world.
    empty_folders: Vec<CString>,
    /// Folders that are created in these, outer ones first: they lead to `private_folders`.
    made_folders: Vec<CString>,
    /// Folders that are empty in this world.
    private_folders: Vec<CString>,
    /// Files of the machine with their contents; folders have none.
    machine_files: Vec<(CString, Option<String>)>,
    /// File for standard output and standard error, if not those of the supervisor.
    output: Option<CString>,
    user_map: Vec<u8>,
    group_map: Vec<u8>,
}

impl PreparedStart {
    fn new(options: &WorldOptions) -> Result<PreparedStart, WorldError> {
        let program: &OsStr = &options.program;
        let text = |bytes: &[u8]| {
            let error =
                || io::Error::new(io::ErrorKind::InvalidInput, "its name or an argument has a zero byte");
            CString::new(bytes).map_err(|_| WorldError::Program {
                program: program.to_string_lossy().into_owned(),
                error: error(),
            })
        };
        let paths: Vec<Vec<u8>> = if program.as_bytes().contains(&b'/') {
            vec![program.as_bytes().to_vec()]
        } else {
            let of_path = options.environment.iter().find(|(name, _)| name == "PATH");
            let path = of_path.map_or_else(|| "/usr/bin:/bin".into(), |(_, value)| value.clone());
            let join = |folder: &[u8]| [folder, b"/", program.as_bytes()].concat();
            path.as_bytes()
                .split(|byte| *byte == b':')
                .filter(|folder| !folder.is_empty())
                .map(join)
                .collect()
        };
        let environment = |set: &[(&str, &str)]| -> Result<Vec<CString>, WorldError> {
            let is_recorded = |name: &OsStr| !set.iter().any(|(known, _)| *known == name);
            let inherited = options.environment.iter().filter(|(name, _)| is_recorded(name));
            let inherited = inherited.map(|(name, value)| (name.as_bytes(), value.as_bytes()));
            let set = set.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
            inherited.chain(set).map(|(name, value)| text(&[name, b"=", value].concat())).collect()
        };
        let cache = format!("{PYTEST_CACHE} {}", variable(options, PYTEST_OPTIONS));
        let inside = [&ENVIRONMENT[..], &[(TMPDIR, TEMPORARY), (PYTEST_OPTIONS, cache.trim_end())]].concat();
        let (user, group) = (getuid(), getgid());
        Ok(PreparedStart {
            paths: paths.iter().map(|path| text(path)).collect::<Result<_, _>>()?,
            arguments: options.arguments.iter().map(|one| text(one.as_bytes())).collect::<Result<_, _>>()?,
            environment: environment(&ENVIRONMENT)?,
            environment_inside: environment(&inside)?,
            empty_folders: EMPTY_FOLDERS
                .iter()
                .map(|folder| text(folder.as_bytes()))
                .collect::<Result<_, _>>()?,
            made_folders: options
                .private_folders
                .iter()
                .flat_map(|folder| add_empty_folders(folder))
                .map(|folder| text(folder.as_os_str().as_bytes()))
                .collect::<Result<_, _>>()?,
            private_folders: options
                .private_folders
                .iter()
                .map(|folder| text(folder.as_os_str().as_bytes()))
                .collect::<Result<_, _>>()?,
            machine_files: machine_files()
                .into_iter()
                .map(|file| Ok((text(file.path.as_bytes())?, file.text)))
                .collect::<Result<_, WorldError>>()?,
            output: options.output.as_ref().map(|file| text(file.as_os_str().as_bytes())).transpose()?,
            user_map: format!("{user} {user} 1\n").into_bytes(),
            group_map: format!("{group} {group} 1\n").into_bytes(),
        })
    }
}

/// Returns a variable of the user's environment, as text.
fn variable(options: &WorldOptions, name: &str) -> String {
    let found = options.environment.iter().find(|(known, _)| known == name);
    found.map_or_else(String::new, |(_, value)| value.to_string_lossy().into_owned())
}

/// Creates the namespaces, and waits for the processes in them. Where namespaces are not available, this
/// process becomes the first process itself.
fn outer(command: &PreparedStart, filter: &BpfProgram) {
    let _ = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL);
    // The output is opened before folders are hidden, because it may be in one of them.
    if let Some(file) = &command.output
        && !redirect(file)
    {
        return;
    }
    let own = CloneFlags::CLONE_NEWUSER
        | CloneFlags::CLONE_NEWPID
        | CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWIPC;
    if unshare(own).is_err() {
        first(command, &command.environment, filter);
        return;
    }
    let _ = put("/proc/self/setgroups", b"deny");
    let _ = put("/proc/self/uid_map", &command.user_map);
    let _ = put("/proc/self/gid_map", &command.group_map);
    // SAFETY: the same as in `start`.
    match unsafe { fork() } {
        Ok(ForkResult::Parent { child }) => wait_for(child),
        Ok(ForkResult::Child) => {
            let _ = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL);
            inner(command, filter);
        }
        Err(_) => {}
    }
}

/// Runs the init process of the PID namespace, which adopts processes whose parent has ended.
fn inner(command: &PreparedStart, filter: &BpfProgram) {
    let has_folder = private_mounts(command);
    let environment = if has_folder { &command.environment_inside } else { &command.environment };
    bring_up_loopback();
    let _ = nix::unistd::sethostname("world");
    // SAFETY: the same as in `start`.
    match unsafe { fork() } {
        Ok(ForkResult::Parent { child }) => wait_for(child),
        Ok(ForkResult::Child) => {
            let _ = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL);
            first(command, environment, filter);
        }
        Err(_) => {}
    }
}

fn wait_for(child: Pid) {
    use nix::sys::wait::{WaitStatus, wait};
    loop {
        match wait() {
            Ok(WaitStatus::Exited(pid, code)) if pid == child => exit(code),
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == child => exit(128 + signal as i32),
            Err(Errno::EINTR) | Ok(_) => {}
            Err(_) => exit(NOT_STARTED),
        }
    }
}

/// Reports whether a folder is in one that is empty in each world.
pub(crate) fn is_in_empty_folder(folder: &Path) -> bool {
    !add_empty_folders(folder).is_empty()
}

/// Returns a folder and its ancestors within a folder that is empty in every world, outer ones first; empty
/// if it is in none of these.
fn add_empty_folders(folder: &Path) -> Vec<&Path> {
    let is_below =
        |path: &&Path| EMPTY_FOLDERS.iter().any(|empty| path.starts_with(empty) && *path != Path::new(empty));
    let mut found: Vec<&Path> = folder.ancestors().filter(is_below).collect();
    found.reverse();
    found
}

/// Mounts a /proc of the world's processes, and folders that are invisible to the machine. Returns whether
/// the folder of temporary files is one of them.
fn private_mounts(command: &PreparedStart) -> bool {
    use nix::mount::{MsFlags, mount};
    const NOTHING: Option<&str> = None;
    let _ = mount(NOTHING, "/", NOTHING, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NOTHING);
    let _ = mount(Some("proc"), "/proc", Some("proc"), MsFlags::empty(), NOTHING);
    let (mut has_own_memory, mut has_own_system) = (false, false);
    let empty = |folder: &CString| {
        let options = Some("mode=0700");
        mount(Some("tmpfs"), folder.as_c_str(), Some("tmpfs"), MsFlags::empty(), options).is_ok()
    };
    for folder in &command.empty_folders {
        let is_empty = empty(folder);
        has_own_memory |= is_empty && folder.as_bytes() == SHARED_MEMORY.as_bytes();
        has_own_system |= is_empty && folder.as_bytes() == SYSTEM.as_bytes();
    }
    for folder in &command.made_folders {
        let _ = nix::unistd::mkdir(folder.as_c_str(), nix::sys::stat::Mode::S_IRWXU);
    }
    for folder in &command.private_folders {
        // A recording may name a folder that this machine lacks.
        let _ = nix::unistd::mkdir(folder.as_c_str(), nix::sys::stat::Mode::S_IRWXU);
        empty(folder);
    }
    for (path, text) in command.machine_files.iter().filter(|_| has_own_system) {
        let _ = match text {
            Some(text) => put(path.as_c_str(), text.as_bytes()),
            None => nix::unistd::mkdir(path.as_c_str(), nix::sys::stat::Mode::S_IRWXU),
        };
    }
    has_own_memory && nix::unistd::mkdir(TEMPORARY, nix::sys::stat::Mode::S_IRWXU).is_ok()
}

/// Brings up the loopback interface, which is the whole network of the world.
fn bring_up_loopback() {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
    let Ok(socket) = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None) else {
        return;
    };
    // SAFETY: an `ifreq` of zero bytes is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the request is initialized, and the kernel reads no more than it.
    unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
}

/// Ignores and blocks no signal. A shell lets a program in the background ignore some, and a run is the same in
/// the foreground.
fn reset_signals() {
    for signal in Signal::iterator().filter(|signal| !matches!(signal, Signal::SIGKILL | Signal::SIGSTOP)) {
        // SAFETY: the default action runs no code of this process.
        let _ = unsafe { nix::sys::signal::signal(signal, SigHandler::SigDfl) };
    }
    let _ = SigSet::empty().thread_set_mask();
}

/// Executes the program. Returns if that fails.
fn first(command: &PreparedStart, environment: &[CString], filter: &BpfProgram) {
    if let Ok(known) = personality::get() {
        let _ = personality::set(known | Persona::ADDR_NO_RANDOMIZE);
    }
    // SAFETY: all arguments are numbers; descriptors of the supervisor that are open here are closed.
    unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
    // SAFETY: all arguments are numbers; the tracer emulates what the processor then refuses.
    unsafe { libc::prctl(libc::PR_SET_TSC, libc::PR_TSC_SIGSEGV) };
    reset_signals();
    if seccompiler::apply_filter(filter).is_err() {
        exit(NO_FILTER);
    }
    let mut code = NOT_FOUND;
    for path in &command.paths {
        match nix::unistd::execve(path, &command.arguments, environment) {
            Err(Errno::ENOENT | Errno::ENOTDIR) => {}
            Err(_) => code = NOT_STARTED,
            Ok(never) => match never {},
        }
    }
    exit(code)
}

/// Redirects standard output and standard error to a file, in the order in which they are written.
fn redirect(file: &CString) -> bool {
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_APPEND;
    // SAFETY: the name ends with a zero byte, and the other arguments are numbers.
    unsafe {
        let opened = libc::open(file.as_ptr(), flags, 0o600);
        let done = opened >= 0 && libc::dup2(opened, 1) == 1 && libc::dup2(opened, 2) == 2;
        done && libc::close(opened) == 0
    }
}

fn put<P: nix::NixPath + ?Sized>(path: &P, bytes: &[u8]) -> nix::Result<()> {
    use nix::fcntl::{OFlag, open};
    use nix::sys::stat::Mode;
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_CLOEXEC;
    let file = open(path, flags, Mode::S_IRUSR | Mode::S_IRGRP | Mode::S_IROTH)?;
    write(&file, bytes).map(|_| ())
}

fn exit(code: i32) -> ! {
    // SAFETY: the call does not return, and runs no handlers.
    unsafe { libc::_exit(code) }
}
