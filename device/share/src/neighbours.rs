//! The table of this user's processes in other network namespaces of this host: two containers joined by a
//! veth pair overrun each other as easily as two processes on one address. They are found where the folder
//! for registries is the same.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use pumice_ports::Peer;

use super::backlog_table::BacklogTable;
use super::member_index::MemberIndex;
use super::system::{self, File};
use super::{folder, registry};

/// Time between two looks into the folder.
const LOOK_INTERVAL_NS: u64 = 1_000_000_000;
/// Namespaces that are known at a time. Files of those that ended stay in the folder.
const MAX_NAMESPACES: usize = 64;
/// Destinations that are remembered between two looks.
const MAX_ROUTES: usize = 1024;

#[derive(Debug)]
struct Neighbour {
    name: String,
    table: Arc<BacklogTable>,
    /// Its locks tell which processes live.
    registry: File,
}

/// A table of another namespace, and which member of it a destination is.
type Route = (Arc<BacklogTable>, MemberIndex);

/// Other namespaces, and which of them destinations are in.
#[derive(Debug)]
pub(super) struct Neighbours {
    folder: PathBuf,
    port: u16,
    found: Vec<Neighbour>,
    routes: HashMap<Peer, Option<Route>>,
    looked_ns: Option<u64>,
}

impl Neighbours {
    /// Those whose files are in `folder`.
    pub(super) fn new(folder: PathBuf, port: u16) -> Neighbours {
        Neighbours { folder, port, found: Vec::new(), routes: HashMap::new(), looked_ns: None }
    }

    /// The table with the entry of `peer`, if there is one and only one.
    pub(super) fn find(&mut self, now_ns: u64, peer: Peer) -> Option<Route> {
        if self.looked_ns.is_none_or(|looked_ns| now_ns.saturating_sub(looked_ns) >= LOOK_INTERVAL_NS) {
            self.looked_ns = Some(now_ns);
            self.routes.clear();
            self.look();
        }
        if let Some(known) = self.routes.get(&peer) {
            return known.clone();
        }
        let mut all = self.found.iter().filter_map(|each| {
            let member = each.table.find(peer, |_| false)?;
            registry::is_member_alive(&each.registry, member).then(|| (Arc::clone(&each.table), member))
        });
        let first = all.next();
        // The same address twice is two networks', and nothing tells which is meant.
        let route = first.filter(|_| all.next().is_none());
        if self.routes.len() < MAX_ROUTES {
            self.routes.insert(peer, route.clone());
        }
        route
    }

    /// What [`find`](Neighbours::find) found last.
    pub(super) fn found(&self, peer: Peer) -> Option<Route> {
        self.routes.get(&peer)?.clone()
    }

    fn look(&mut self) {
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
                self.found.push(Neighbour { name, table: Arc::new(table), registry });
            }
        }
    }
}
