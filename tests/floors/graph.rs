//! Which file of a crate uses which: files are the nodes, and a name that one takes from another is an edge.
//!
//! Names are followed through re-exports to the file that defines them, so that a `mod.rs` which only
//! declares and re-exports its children stands in no circle.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::modules::{Import, Modules};

/// Re-exports that are followed one after the other.
const MAX_STEPS: usize = 12;

/// Files, each with the files that it uses.
pub(super) type Graph = BTreeMap<PathBuf, BTreeSet<PathBuf>>;

/// What a path leads to.
enum Target {
    Module(usize),
    /// Something that a module defines.
    Item(usize),
}

/// The graph of a crate without its tests.
pub(super) fn graph(modules: &Modules) -> Graph {
    let mut found = Graph::new();
    for (index, module) in modules.all.iter().enumerate().filter(|(_, module)| !module.is_test) {
        let used = used_by(modules, index);
        let edges = found.entry(module.file.clone()).or_default();
        edges.extend(used.into_iter().map(|other| modules.all[other].file.clone()));
        edges.remove(&module.file);
    }
    found
}

/// The modules that a module uses something of.
fn used_by(modules: &Modules, index: usize) -> BTreeSet<usize> {
    let module = &modules.all[index];
    let mut used = BTreeSet::new();
    for import in &module.imports {
        if import.name == "*" {
            if let Some(Target::Module(other)) = resolve(modules, index, &import.path, 0)
                && !import.is_public
            {
                let names = module.words.iter().filter(|word| !module.items.contains(*word));
                let items = names.filter_map(|name| look_up(modules, other, name, 0));
                used.extend(items.filter_map(item));
            }
        } else if !import.is_public || module.words.contains(&import.name) {
            used.extend(resolve(modules, index, &import.path, 0).and_then(item));
        }
    }
    for path in &module.paths {
        used.extend(resolve(modules, index, path, 0).and_then(item));
    }
    for name in &module.calls {
        let defines = |(_, other): &(usize, &super::modules::Module)| other.macros.contains(name);
        used.extend(modules.all.iter().enumerate().find(defines).map(|(other, _)| other));
    }
    used
}

fn item(target: Target) -> Option<usize> {
    match target {
        Target::Item(module) => Some(module),
        Target::Module(_) => None,
    }
}

/// Follows a path that stands in a module; none if it leaves the crate.
fn resolve(modules: &Modules, from: usize, path: &[String], steps: usize) -> Option<Target> {
    let (first, rest) = path.split_first()?;
    let mut found = match first.as_str() {
        "crate" => Target::Module(0),
        "self" => Target::Module(from),
        "super" => Target::Module(modules.all[from].parent),
        // An item of this module, or of its imports, or of another crate.
        name => look_up(modules, from, name, steps).filter(|_| !rest.is_empty() || steps > 0)?,
    };
    for name in rest {
        let Target::Module(module) = found else { break };
        found = match name.as_str() {
            "super" => Target::Module(modules.all[module].parent),
            name => look_up(modules, module, name, steps)
                .or_else(|| exported_macro(modules, module, name))
                .unwrap_or(Target::Item(module)),
        };
    }
    Some(found)
}

/// What a name means in a module.
fn look_up(modules: &Modules, index: usize, name: &str, steps: usize) -> Option<Target> {
    let module = &modules.all[index];
    if let Some(child) = module.children.get(name) {
        return Some(Target::Module(*child));
    }
    if module.items.contains(name) {
        return Some(Target::Item(index));
    }
    if steps >= MAX_STEPS {
        return None;
    }
    let of_name = |import: &&Import| import.name == name && import.path.first().is_some_and(|f| f != name);
    if let Some(import) = module.imports.iter().find(of_name) {
        return resolve(modules, index, &import.path, steps + 1);
    }
    module.imports.iter().filter(|import| import.name == "*").find_map(|import| {
        match resolve(modules, index, &import.path, steps + 1)? {
            Target::Module(other) if other != index => look_up(modules, other, name, steps + 1),
            _ => None,
        }
    })
}

/// A macro of `#[macro_export]`, which the root of the crate has wherever it is defined.
fn exported_macro(modules: &Modules, module: usize, name: &str) -> Option<Target> {
    let defining = modules.all.iter().position(|other| other.macros.contains(name))?;
    (module == 0).then_some(Target::Item(defining))
}

/// The circles: sets of files each of which reaches the others.
pub(super) fn circles(graph: &Graph) -> Vec<Vec<PathBuf>> {
    let reach: BTreeMap<&PathBuf, BTreeSet<&PathBuf>> =
        graph.keys().map(|file| (file, reachable(graph, file))).collect();
    let mut done = BTreeSet::new();
    let mut found = Vec::new();
    for file in graph.keys() {
        if done.contains(file) || !reach[file].contains(file) {
            continue;
        }
        let back = |other: &&&PathBuf| reach.get(**other).is_some_and(|others| others.contains(file));
        let circle: Vec<PathBuf> = reach[file].iter().filter(back).map(|other| (*other).clone()).collect();
        done.extend(circle.iter().cloned());
        found.push(circle);
    }
    found
}

/// The files that a file reaches by one edge or more.
fn reachable<'a>(graph: &'a Graph, from: &PathBuf) -> BTreeSet<&'a PathBuf> {
    let mut found = BTreeSet::new();
    let mut left: Vec<&PathBuf> = graph.get(from).into_iter().flatten().collect();
    while let Some(file) = left.pop() {
        if found.insert(file) {
            left.extend(graph.get(file).into_iter().flatten());
        }
    }
    found
}
