//! The rooms of each crate, lowest first, written down once. ARCHITECTURE.md shows this table.

use std::path::{Path, PathBuf};

/// A part of a crate that imports only parts below it.
pub(super) struct Room {
    pub(super) name: &'static str,
    /// What is in it, below the crate's `src`: a name that ends in `/` is a folder, and `*` is all that no
    /// other room has.
    pub(super) files: &'static [&'static str],
    /// What it is for, in a line.
    pub(super) purpose: &'static str,
}

/// A crate with rooms.
pub(super) struct House {
    /// The folder of its sources.
    pub(super) folder: &'static str,
    /// Lowest first. The root file of the crate stands above them all.
    pub(super) rooms: &'static [Room],
}

const fn room(name: &'static str, files: &'static [&'static str], purpose: &'static str) -> Room {
    Room { name, files, purpose }
}

/// All crates that have more than one room, lowest first.
pub(super) const HOUSES: &[House] = &[
    House {
        folder: "transport/src",
        rooms: &[
            room("proofs", &["proofs.rs"], "arbitrary values, for the proofs of all crates"),
            room("path", &["path.rs"], "how the opposite directions of one path belong together"),
            room("wire", &["wire/"], "headers, opcodes, the ICRC: bytes and values, each way"),
            room(
                "types",
                &["types/"],
                "the words that all floors share: states, requests, completions, rights",
            ),
            room("event", &["event/"], "what happens to a queue pair, for its listeners"),
            room("host", &["host.rs"], "what the protocol asks of the device"),
            room("mad", &["mad/"], "the messages of connection management"),
            room("qp", &["qp/"], "the machines of queue pairs: requester, responder, completer"),
            room("cm", &["cm/"], "the machine that makes and ends connections"),
        ],
    },
    House {
        folder: "device/ground/src",
        rooms: &[
            room("ground", &["*"], "tables of handles, errors, quantities, random numbers, the clock"),
            room(
                "system",
                &["system/"],
                "what is asked of the operating system outside of ports and sharing",
            ),
            room("order", &["order/"], "the order of calls and arrivals: noted, and imposed by a replay"),
        ],
    },
    House {
        folder: "device/faults/src",
        rooms: &[
            room("shuffle", &["shuffle/"], "what the specification leaves open, drawn from a seed"),
            room(
                "faults",
                &["*"],
                "what goes wrong on purpose: plans, and the fates of packets, calls and completions",
            ),
        ],
    },
    House {
        folder: "device/events/src",
        rooms: &[
            room(
                "findings",
                &["findings/"],
                "the one value by which all say that something is wrong, and its printers",
            ),
            room("inspect", &["inspect/"], "what a process tells of its objects"),
            room("event", &["*"], "everything that happens, as one stream, and who listens"),
            room("counters", &["counters.rs"], "the numbers that operators read"),
        ],
    },
    House {
        folder: "device/traces/src",
        rooms: &[
            room("format", &["format/"], "records and heads, as bytes and as values"),
            room("timeline", &["timeline/"], "what traces tell together, on one clock"),
            room("why", &["why/"], "where the time of a message went, and what to change"),
            room("require", &["require/"], "requirements on a run, which traces bear out or not"),
            room("diff", &["diff.rs"], "how two runs differ"),
        ],
    },
    House {
        folder: "device/profile/src",
        rooms: &[
            room("addresses", &["addresses/"], "ports, GIDs, P_Keys and groups"),
            room("settings", &["settings/"], "the PUMICE_* variables"),
            room("profile", &["*"], "what a device says about itself"),
        ],
    },
    House {
        folder: "device/objects/src",
        rooms: &[
            room("objects", &["*"], "completion queues, receive queues, events: what programs hold"),
            room("memory", &["memory/"], "registered memory, its keys and its checks"),
        ],
    },
    House {
        folder: "device/ports/src",
        rooms: &[
            room("port", &["*"], "where packets leave and arrive, and what wraps that"),
            room("gsi", &["gsi/"], "queue pair 1: connection management beside the data path"),
            room(
                "ethernet",
                &["ethernet/"],
                "frames of raw packet queue pairs, and the rules that steer them",
            ),
        ],
    },
    House {
        folder: "device/share/src",
        rooms: &[
            room("share", &["*"], "several processes with one address"),
            room("xrc", &["xrc/"], "XRC targets that are several processes"),
        ],
    },
    House {
        folder: "device/engine/src",
        rooms: &[
            room("gate", &["gate.rs"], "the entry of calls of programs that are linked with the device"),
            room("decisions", &["decisions/"], "who decides about packets, work and stores, and what waits"),
            room("resources", &["resources/"], "the tables of all objects, under the engine's lock"),
            room("engine", &["engine/"], "drives queue pairs against a port"),
            room("driver", &["driver/"], "who drives the engine, and when"),
            room("hca", &["hca/"], "the adapter as its users see it"),
            room("world", &["world.rs", "event_tests.rs"], "several adapters in virtual time"),
        ],
    },
    House {
        folder: "device/instruments/src",
        rooms: &[
            room("listeners", &["listeners/"], "the log, printed steps, the report of a fault plan"),
            room("capture", &["capture.rs", "capture_tests.rs"], "packets as a file"),
            room("sysfs", &["sysfs/"], "the contents of a private /sys/class/infiniband"),
            room("trace", &["trace/"], "records what happens, as a file"),
            room("waits", &["waits/"], "what programs wait for in vain, and why"),
            room("check", &["check/"], "what programs do wrong"),
        ],
    },
    House {
        folder: "device/src",
        rooms: &[
            room("recording", &["recording.rs"], "traces that begin and end while a program runs"),
            room("opening", &["opening.rs"], "the one place where a device is put together"),
            room("standings", &["standings.rs"], "how processes stand that may wait for each other"),
            room("fuzzing", &["fuzzing.rs"], "private functions that read input, for fuzz targets"),
        ],
    },
    House {
        folder: "verbs/src",
        rooms: &[
            room("ground", &["ground/"], "errors, slices of memory, memory that is owned"),
            room("transport", &["transport/"], "services as types, and what may be chosen when connecting"),
            room("check", &["check/"], "what programs do wrong"),
            room("device", &["device/"], "devices on networks and in simulations, and waiting"),
            room("objects", &["objects/"], "what programs make of a device, queue pairs apart"),
            room("queue pairs", &["queue_pair/"], "queue pairs, their requests, memory windows"),
            room("rdma_cm", &["rdma_cm/"], "connections by address"),
            room("asynchronous", &["asynchronous/"], "futures: waiting without blocking a thread"),
        ],
    },
    House {
        folder: "verbs/perf/src",
        rooms: &[
            room("plan", &["plan/"], "what to measure"),
            room(
                "ground",
                &["error.rs", "cores.rs", "machine.rs", "pattern.rs", "statistics.rs"],
                "errors, cores, contents of messages, medians",
            ),
            room("endpoint", &["endpoint/"], "one end's device, queue pairs and buffers"),
            room("control", &["control/"], "how two ends agree over TCP"),
            room(
                "rounds",
                &["rounds/", "raw.rs", "memory.rs"],
                "what an end does in a round; the yardsticks",
            ),
            room("report", &["report.rs", "pairs.rs"], "what was found"),
            room(
                "ends",
                &["session/", "server.rs", "connections.rs"],
                "the measuring end and the serving end",
            ),
        ],
    },
    House {
        folder: "verbs/capi/src",
        rooms: &[
            room("ground", &["ground/"], "structures of the ABI, handles, errno, the log, settings"),
            room("objects", &["objects/"], "devices, contexts and what they hold"),
            room("calls", &["calls/"], "one file per family of calls"),
            room("tables", &["tables.rs", "tables/"], "the function pointers through which verbs.h calls"),
            room(
                "cm constants",
                &["rdma_cm/constants.rs", "rdma_cm/connection_error.rs"],
                "numbers of rdma_cma.h, errno of the connection manager",
            ),
            room("cm addresses", &["rdma_cm/address/"], "C forms of addresses, own addresses, names"),
            room("cm identifiers", &["rdma_cm/id/"], "identifiers, their channels and verbs objects"),
            room("cm events", &["rdma_cm/events/"], "the device's events as the program's"),
            room("rdma_cm", &["rdma_cm/"], "librdmacm's calls"),
            room("rsocket protocol", &["rsocket/protocol/"], "streams without I/O, headers of datagrams"),
            room("rsocket parts", &["rsocket/parts/"], "queue pair, memory, identifier, event thread"),
            room("sockets", &["rsocket/sockets/"], "streams, datagrams, the table, waiting"),
            room("rsocket", &["rsocket/"], "rsocket's calls"),
        ],
    },
    House {
        folder: "src",
        rooms: &[
            room("version", &["build.rs", "version.rs"], "what the program was built from"),
            room(
                "outcome",
                &["outcome.rs", "printed.rs"],
                "the ways in which a command can end, and what it prints",
            ),
            room("observe", &["observe/"], "what running processes do"),
            room(
                "captures",
                &[
                    "capture/decode.rs",
                    "capture/file.rs",
                    "capture/homes.rs",
                    "capture/management.rs",
                    "capture/messages.rs",
                    "capture/pairs.rs",
                    "capture/plan/",
                    "capture/processes.rs",
                    "capture/record.rs",
                ],
                "packets of captures",
            ),
            room(
                "commands",
                &[
                    "check/",
                    "course/",
                    "explain/",
                    "hang/",
                    "fault/",
                    "perf/",
                    "run/",
                    "sim/",
                    "stat/",
                    "sweep/",
                    "top/",
                    "topology/",
                    "trace/",
                    "world/",
                ],
                "arguments in, text or JSON out",
            ),
            room("cli", &["cli.rs"], "the grammar of the command line"),
            room(
                "words",
                &["help.rs", "spellings.rs"],
                "what a person reads first, and old names of commands",
            ),
            room(
                "device commands",
                &[
                    "capture/",
                    "devices.rs",
                    "doctor/",
                    "personalities.rs",
                    "reference/",
                    "replay/",
                    "same_host.rs",
                    "shell.rs",
                ],
                "commands that use the grammar's types",
            ),
        ],
    },
];

/// The house that a file is in, and the index of its room; none for the room: no room has it.
pub(super) fn room_of(file: &Path) -> Option<(&'static House, Option<usize>)> {
    let house = HOUSES.iter().find(|house| file.starts_with(house.folder))?;
    let inside = file.strip_prefix(house.folder).ok()?;
    let has = |name: &&str| match name.strip_suffix('/') {
        Some(folder) => inside.starts_with(folder),
        None => *name == "*" || inside == Path::new(name),
    };
    // A file may be in another room than the folder around it: the longest name counts.
    let matching = house.rooms.iter().enumerate().flat_map(|(index, room)| {
        room.files.iter().filter(|name| has(name)).map(move |name| (name.len(), index))
    });
    Some((house, matching.max().map(|(_, index)| index)))
}

/// Whether a file is the root of its crate.
pub(super) fn is_root(file: &Path, house: &House) -> bool {
    ["lib.rs", "main.rs"].iter().any(|name| PathBuf::from(house.folder).join(name) == file)
}

/// The table as ARCHITECTURE.md shows it, highest first as in the picture of a house.
pub(super) fn table() -> String {
    let mut text = String::from("| Crate | Room | What it is for |\n|---|---|---|\n");
    for house in HOUSES.iter().rev() {
        for room in house.rooms.iter().rev() {
            text.push_str(&format!("| `{}` | `{}` | {} |\n", house.folder, room.name, room.purpose));
        }
    }
    text
}
