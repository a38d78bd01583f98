//! The rooms of each crate, lowest first, written down once. docs/rooms.md shows this table.

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
pub(super) struct CrateRooms {
    /// The folder of its sources.
    pub(super) folder: &'static str,
    /// Lowest first. The root file of the crate stands above them all.
    pub(super) rooms: &'static [Room],
}

const fn room(name: &'static str, files: &'static [&'static str], purpose: &'static str) -> Room {
    Room { name, files, purpose }
}

/// All crates that have more than one room, lowest first.
pub(super) const CRATE_ROOMS: &[CrateRooms] = &[
    CrateRooms {
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
            room("mrc", &["mrc/"], "MRC: WRITEs over many paths at once, beside RC and without it"),
        ],
    },
    CrateRooms {
        folder: "device/platform/src",
        rooms: &[
            room("errors", &["error.rs"], "errors with an errno, text for terminals"),
            room("outside", &["outside/"], "what is asked of the operating system"),
            room(
                "values",
                &[
                    "call_stack.rs",
                    "clock.rs",
                    "number_map.rs",
                    "limits.rs",
                    "link_settings.rs",
                    "link_words_tests.rs",
                    "quantity.rs",
                    "random_proofs.rs",
                    "word.rs",
                    "word_model.rs",
                ],
                "quantities as people write them, random numbers, the clock, words that threads share",
            ),
            room("tables", &["table.rs", "table_proofs.rs"], "tables of handles"),
            room(
                "threads",
                &["event_queue.rs", "spin_lock.rs", "spin_lock_model.rs", "ordinal.rs"],
                "locks, queues of events, values that threads wait for, ordinals",
            ),
            room("sockets", &["packet_socket/", "udp/"], "sockets for UDP and for Ethernet frames"),
            room("order", &["order/"], "the order of calls and arrivals: noted, and imposed by a replay"),
        ],
    },
    CrateRooms {
        folder: "device/model/src",
        rooms: &[
            room("built-in", &["built_in.rs"], "the texts of the built-in profiles"),
            room("counters", &["counters.rs"], "the numbers that operators read"),
            room("shuffle", &["shuffle/"], "what the specification leaves open, drawn from a seed"),
            room("addresses", &["addresses/"], "ports, GIDs, P_Keys and groups"),
            room("mrc-profiles", &["mrc_profiles/"], "the profiles that a controller of MRC sets up"),
            room(
                "fates",
                &["fates/"],
                "what a fault plan can do to packets, calls, completions and the device",
            ),
            room(
                "findings",
                &["findings/"],
                "the one value by which all say that something is wrong, and its printers",
            ),
            room("inspect", &["inspect/"], "what a process says of its objects"),
            room("event", &["event/"], "everything that happens, as one stream, and its subscribers"),
            room("recording", &["recording.rs"], "orders to record, and who records"),
            room("port", &["port/"], "what every port does, and what it carries"),
            room("settings", &["settings/"], "the PUMICE_* variables"),
            room("profile", &["profile/"], "what a device says about itself"),
            room("network", &["network/"], "links and topologies, as values"),
            room(
                "performance",
                &["performance/"],
                "what adapters, hosts and networks cost: models, their sums, costs of packets",
            ),
        ],
    },
    CrateRooms {
        folder: "device/faults/src",
        rooms: &[
            room("incidents", &["incident.rs"], "incidents that are due"),
            room("traffic", &["traffic.rs", "frontier.rs"], "how a rule counts along one kind of traffic"),
            room(
                "plans",
                &[
                    "action.rs",
                    "answer.rs",
                    "armed.rs",
                    "calls/",
                    "completion_events/",
                    "completions/",
                    "plan.rs",
                    "reach.rs",
                    "select.rs",
                    "waits.rs",
                ],
                "rules: which things they are about, when, and what they do",
            ),
            room(
                "decisions",
                &["at_calls.rs", "decide.rs"],
                "the fates of packets, calls and completions in one device",
            ),
            room(
                "texts",
                &["ready/", "settings.rs", "text/"],
                "plans and reports as people read and write them",
            ),
            room(
                "arbiter",
                &["arbiter.rs", "change.rs", "change_tests.rs"],
                "what a device asks a plan, and changes while a program runs",
            ),
            room("ports", &["port/", "wire.rs"], "faults that a port carries out"),
        ],
    },
    CrateRooms {
        folder: "device/fabric/src",
        rooms: &[
            room("port", &["port/"], "ports around a port"),
            room("udp", &["udp/"], "the real network"),
            room("gsi", &["gsi/"], "queue pair 1: connection management beside the data path"),
            room("link", &["link/"], "rates, queues and delays around a port"),
            room("simulated", &["simulated/"], "a network in virtual time"),
            room("switched", &["switched/"], "switches between processes, in real time"),
            room("ring", &["ring/"], "rings of shared memory between two processes"),
            room("system", &["system/"], "what sharing asks of the operating system"),
            room(
                "members",
                &["members/"],
                "the processes that share an address: indices, records, whether they run",
            ),
            room("files", &["files/"], "folders, files, locks and socket names by which processes meet"),
            room("same host", &["same_host/"], "paths that go through rings"),
            room("steering", &["steering.rs"], "which process's socket gets a packet"),
            room("registry", &["registry/"], "which process has which queue pairs and services"),
            room("relay", &["relay/"], "packets and orders from one process to another"),
            room("backlog", &["backlog/"], "how much waits in the sockets of others"),
            room("xrc", &["xrc/"], "XRC targets that are several processes"),
            room("queries", &["queries/"], "questions and orders to other processes"),
            room("shared port", &["shared_port/"], "the port of one process of several with one address"),
            room("sharing", &["sharing/"], "several processes with one address"),
            room(
                "fuzzing",
                &["fuzzing.rs", "simulation/"],
                "private functions for fuzz targets; a simulated kernel for tests",
            ),
        ],
    },
    CrateRooms {
        folder: "device/engine/src",
        rooms: &[
            room(
                "ethernet",
                &["ethernet/"],
                "frames of raw packet queue pairs, and the rules that steer them",
            ),
            room("objects", &["objects/"], "completion queues, receive queues, channels: what programs hold"),
            room("gate", &["gate.rs"], "the entry of calls of programs that are linked with the device"),
            room("decisions", &["decisions/"], "who decides about packets, work and stores, and what waits"),
            room("resources", &["resources/"], "the tables of all objects, under the engine's lock"),
            room("engine", &["engine/"], "drives queue pairs against a port"),
            room("driver", &["driver/"], "who drives the engine, and when"),
            room("hca", &["hca/"], "the adapter as its users see it"),
            room(
                "world",
                &["world.rs", "event_tests.rs", "lane_tests.rs"],
                "several adapters in virtual time",
            ),
        ],
    },
    CrateRooms {
        folder: "device/recording/src",
        rooms: &[
            room("steps", &["steps.rs"], "how much was looked at, which tests count"),
            room("format", &["format/"], "records and heads, as bytes and as values"),
            room(
                "recorder",
                &["recorder/", "capture.rs", "capture_tests.rs"],
                "what happens and what passes, as files",
            ),
            room("timeline", &["timeline/"], "what traces tell together, on one clock"),
            room("why", &["why/"], "where the time of a message went, and what to change"),
            room("require", &["require/"], "requirements on a run, which traces bear out or not"),
            room("diff", &["diff.rs"], "how two runs differ"),
            room("compare", &["compare.rs"], "what became slower from one run to another, and why"),
        ],
    },
    CrateRooms {
        folder: "device/analysis/src",
        rooms: &[
            room("listeners", &["listeners/"], "the log, printed steps, the report of a fault plan"),
            room("sysfs", &["sysfs/"], "the contents of a private /sys/class/infiniband"),
            room("waits", &["waits/"], "what programs wait for, and why it does not come"),
            room("check", &["check/"], "what programs do wrong"),
        ],
    },
    CrateRooms {
        folder: "device/src",
        rooms: &[
            room("recording", &["recording.rs"], "traces that begin and end while a program runs"),
            room("opening", &["opening.rs"], "the one place where a device is put together"),
            room(
                "process statuses",
                &["process_statuses.rs"],
                "how processes stand that may wait for each other",
            ),
            room("fuzzing", &["fuzzing.rs"], "private functions that read input, for fuzz targets"),
        ],
    },
    CrateRooms {
        folder: "verbs/src",
        rooms: &[
            room(
                "errors",
                &["error.rs", "setters.rs"],
                "errors of requests and of calls, and the functions that set options",
            ),
            room("buffers", &["buffers/"], "slices of memory, memory that is owned"),
            room("transport", &["transport.rs"], "services as types, and what may be chosen when connecting"),
            room("check", &["check/"], "what programs do wrong"),
            room("device", &["device/"], "devices on networks and in simulations, and waiting"),
            room("objects", &["objects/"], "what programs make of a device, queue pairs apart"),
            room("queue pairs", &["queue_pair/"], "queue pairs, their requests, memory windows"),
            room("rdma_cm", &["rdma_cm/"], "connections by address"),
            room("world", &["world.rs"], "what a program says to its world"),
            room("asynchronous", &["asynchronous/"], "futures: waiting without blocking a thread"),
        ],
    },
    CrateRooms {
        folder: "verbs/perf/src",
        rooms: &[
            room("plan", &["plan/"], "what to measure"),
            room(
                "basics",
                &["error.rs", "machine.rs", "pattern.rs", "statistics.rs"],
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
    CrateRooms {
        folder: "verbs/capi/src",
        rooms: &[
            room("abi", &["abi/"], "the structures of the ABI, and values that C's memory can be"),
            room("platform", &["platform/"], "what is asked of the operating system and of the C library"),
            room(
                "call sites",
                &["call_sites/"],
                "where the program made a call, on which object, and whether it is checked",
            ),
            room("log", &["log/"], "the log, and refusals of calls"),
            room("mappings", &["mappings/"], "memory that a program gives back past the C library"),
            room("check", &["check/"], "findings: what the checker is asked, and their output"),
            room("waits", &["waits.rs"], "calls that block, and events that must be acknowledged"),
            room("gate", &["gate/"], "the entry of every call: counts, faults, reports"),
            room("entry", &["entry/"], "what crosses the boundary: arguments, results, objects"),
            room("objects", &["objects/"], "devices, contexts and what they hold"),
            room("calls", &["calls/"], "one file per family of calls"),
            room("tables", &["tables.rs", "tables/"], "the function pointers through which verbs.h calls"),
            room(
                "cm constants",
                &["rdma_cm/constants.rs"],
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
    CrateRooms {
        folder: "src",
        rooms: &[
            room("version", &["build.rs", "version.rs"], "what the program was built from"),
            room("outcome", &["outcome.rs"], "the ways in which a command can end, and what it prints"),
            room("observe", &["observe/"], "what running processes do"),
            room(
                "captures",
                &[
                    "capture/decode.rs",
                    "capture/file.rs",
                    "capture/processes.rs",
                    "capture/management.rs",
                    "capture/messages.rs",
                    "capture/multipath.rs",
                    "capture/plan/",
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
                    "models.rs",
                    "fault/",
                    "mrc/",
                    "perf/",
                    "run/",
                    "stat/",
                    "sweep/",
                    "top/",
                    "topology.rs",
                    "trace/",
                    "world/",
                ],
                "arguments in, text or JSON out",
            ),
            room("cli", &["cli.rs"], "the grammar of the command line"),
            room("words", &["help.rs"], "what a person reads first, and old names of commands"),
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
pub(super) fn room_of(file: &Path) -> Option<(&'static CrateRooms, Option<usize>)> {
    let house = CRATE_ROOMS.iter().find(|house| file.starts_with(house.folder))?;
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
pub(super) fn is_root(file: &Path, house: &CrateRooms) -> bool {
    ["lib.rs", "main.rs"].iter().any(|name| PathBuf::from(house.folder).join(name) == file)
}

/// The table as docs/rooms.md shows it, highest first as in the picture of a house.
pub(super) fn table() -> String {
    let mut text = String::from("| Crate | Room | What it is for |\n|---|---|---|\n");
    for house in CRATE_ROOMS.iter().rev() {
        for room in house.rooms.iter().rev() {
            text.push_str(&format!("| `{}` | `{}` | {} |\n", house.folder, room.name, room.purpose));
        }
    }
    text
}
