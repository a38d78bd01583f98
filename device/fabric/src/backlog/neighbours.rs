//! The backlog tables of this user's processes in other network namespaces of this host: two containers
//! joined by a veth pair overrun each other as easily as two processes on one address. They are found if they
//! use the same folder for registries.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use pumice_model::port::batch::Peer;

use super::backlog_table::BacklogTable;
use crate::files::folder;
use crate::members::member_index::MemberIndex;
use crate::registry;
use crate::system::{self, File};

/// Time between two scans of the folder, in nanoseconds.
const SCAN_INTERVAL_NS: u64 = 1_000_000_000;
/// Number of namespaces that are known at a time. Files of namespaces that ended stay in the folder.
const MAX_NAMESPACES: usize = 64;
/// Number of destinations that are remembered between two scans.
const MAX_ROUTES: usize = 1024;

#[derive(Debug)]
struct NeighbourTable {
    name: String,
    table: Arc<BacklogTable>,
    /// Registry whose locks show which processes live.
    registry: File,
}

/// The table of another namespace, and the member of it that a destination is.
type Route = (Arc<BacklogTable>, MemberIndex);

/// The tables of other namespaces, and a cache of which of them destinations are in.
#[derive(Debug)]
pub(crate) struct NeighbourTables {
    folder: PathBuf,
    port: u16,
    found: Vec<NeighbourTable>,
    routes: HashMap<Peer, Option<Route>>,
    scanned_ns: Option<u64>,
}

impl NeighbourTables {
    /// Creates the set of tables whose files are in `folder`.
    pub(crate) fn new(folder: PathBuf, port: u16) -> NeighbourTables {
        NeighbourTables { folder, port, found: Vec::new(), routes: HashMap::new(), scanned_ns: None }
    }

    /// Returns the table with the entry of `peer`, if there is exactly one.
    pub(crate) fn find(&mut self, now_ns: u64, peer: Peer) -> Option<Route> {
        if self.scanned_ns.is_none_or(|scanned_ns| now_ns.saturating_sub(scanned_ns) >= SCAN_INTERVAL_NS) {
            self.scanned_ns = Some(now_ns);
            self.routes.clear();
            self.scan_folder();
        }
        if let Some(known) = self.routes.get(&peer) {
            return known.clone();
        }
        let mut all = self.found.iter().filter_map(|each| {
            let member = each.table.find(peer, |_| false)?;
            registry::is_member_alive(&each.registry, member).then(|| (Arc::clone(&each.table), member))
        });
        let first = all.next();
        // The same address in two namespaces belongs to two networks, and the destination is ambiguous.
        let route = first.filter(|_| all.next().is_none());
        if self.routes.len() < MAX_ROUTES {
            self.routes.insert(peer, route.clone());
        }
        route
    }

    /// Returns the last result of [`find`](NeighbourTables::find) for `peer`.
    pub(crate) fn found(&self, peer: Peer) -> Option<Route> {
        self.routes.get(&peer)?.clone()
    }

    fn scan_folder(&mut self) {
        let Ok(names) = system::list_folder(&self.folder) else { return };
        self.found.retain(|known| names.contains(&known.name));
        for name in names {
            let is_new = !self.found.iter().any(|known| known.name == name);
            let Some(registry) = folder::registry_of_backlog(&name, self.port).filter(|_| is_new) else {
                continue;
            };
            if self.found.len() >= MAX_NAMESPACES {
                break;
            }
            let open = |name: &str| folder::open(&self.folder, name).ok();
            let (Some(file), Some(registry)) = (open(&name), open(registry)) else { continue };
            if let Ok(table) = BacklogTable::map(&file) {
                self.found.push(NeighbourTable { name, table: Arc::new(table), registry });
            }
        }
    }
}
