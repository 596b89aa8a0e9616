//! The files in which programs look for a device: one tree, with the layout that the kernel uses for an adapter on PCI
//! Express.
//!
//! [`nodes`] contains the tree as data; this module resolves paths in it as the kernel does: component by component,
//! through links, where `..` refers to the parent of a link's target. The path shim (`shim/`) serves it to the C
//! library's calls through [`crate::paths`], and `ibv_read_sysfs_file` reads it directly. The tree does not exist in
//! any file system.
//!
//! Some directories exist for the kernel's own devices too (`/sys/class/infiniband`, `/dev/infiniband`): there, a name
//! that is not in the tree is left to the kernel. Everywhere else in the tree such a name does not exist.

mod counters;
mod nodes;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub(crate) use counters::Counter;

/// A node of the tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Node {
    /// A directory; `is_shared` when the kernel may have a directory of the same path.
    Directory { is_shared: bool },
    /// A regular file.
    File(Contents),
    /// A symbolic link, with its target relative to its directory.
    Link(String),
    /// A character device.
    Device { major: u32, minor: u32 },
}

/// Contents of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Contents {
    /// Fixed text, to which a newline is added.
    Text(String),
    /// Value of a counter at the time of the read.
    Count(Counter),
}

impl Contents {
    /// Returns the contents without the final newline.
    pub(crate) fn read(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Count(counter) => counter.read().to_string(),
        }
    }
}

/// Result of a path resolution.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Resolution<'a> {
    /// The path neither ends in the tree nor passes through it: left to the kernel.
    Foreign,
    /// The path passes through the tree and leaves it; contains the resulting path of the kernel.
    Outside(String),
    /// The path ends at a node; contains the path of the node without links.
    Node(String, &'a Node),
    /// The path cannot be resolved; contains the error number.
    Failed(i32),
}

/// All nodes of the tree, by path.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    nodes: BTreeMap<String, Node>,
}

impl Tree {
    /// Returns the current tree, cached for a short time (`CACHE_AGE_MAX`), because programs usually inspect several
    /// paths in a row.
    pub(crate) fn now() -> Arc<Self> {
        static LATEST: Mutex<Option<(Instant, Arc<Tree>)>> = Mutex::new(None);
        // Never wait for the lock, because the process may have been forked while another thread held it.
        let latest = LATEST.try_lock();
        if let Ok(latest) = &latest
            && let Some((built_at, tree)) = &**latest
            && built_at.elapsed() < CACHE_AGE_MAX
        {
            return Arc::clone(tree);
        }
        let tree = Arc::new(nodes::tree());
        if let Ok(mut latest) = latest {
            *latest = Some((Instant::now(), Arc::clone(&tree)));
        }
        tree
    }

    /// Returns the node at a path without links or dots.
    pub(crate) fn get(&self, path: &str) -> Option<&Node> {
        self.nodes.get(path)
    }

    /// Returns the names in a directory of the tree, or the names that the tree adds to a directory of the kernel.
    pub(crate) fn children<'a>(&'a self, directory: &str) -> impl Iterator<Item = (&'a str, &'a Node)> {
        let prefix = format!("{}/", directory.trim_end_matches('/'));
        let from = prefix.clone();
        let inside = self.nodes.range(from..).map_while(move |(path, node)| Some((path.strip_prefix(&prefix)?, node)));
        inside.filter(|(name, _)| !name.contains('/'))
    }

    /// Resolves the absolute path `path`; a link in its last component is only followed if `follows` is set.
    pub(crate) fn resolve(&self, path: &str, follows: bool) -> Resolution<'_> {
        let must_be_directory = path.ends_with('/');
        let mut components: VecDeque<String> = path.split('/').map(str::to_owned).collect();
        // `differs_from_kernel` is true when the kernel would resolve `path` to a different location.
        let (mut current, mut differs_from_kernel, mut links) = (String::new(), false, 0);
        while let Some(name) = components.pop_front() {
            match name.as_str() {
                "" | "." => continue,
                ".." => {
                    differs_from_kernel |= self.get(&current).is_some();
                    current = self.parent_of(&current);
                    continue;
                }
                _ => {}
            }
            let next = format!("{current}/{name}");
            match (self.get(&next), self.get(&current)) {
                (Some(Node::Link(target)), _)
                    if follows || must_be_directory || components.iter().any(|name| !name.is_empty()) =>
                {
                    links += 1;
                    if links > LINKS_MAX {
                        return Resolution::Failed(libc::ELOOP);
                    }
                    differs_from_kernel = true;
                    if target.starts_with('/') {
                        current.clear();
                    }
                    target.rsplit('/').for_each(|name| components.push_front(name.to_owned()));
                }
                (Some(_), _) => current = next,
                (None, Some(Node::Directory { is_shared: false })) => return Resolution::Failed(libc::ENOENT),
                (None, Some(Node::File(_) | Node::Device { .. } | Node::Link(_))) => {
                    return Resolution::Failed(libc::ENOTDIR);
                }
                (None, _) => current = next,
            }
        }
        match self.get(&current) {
            Some(Node::File(_) | Node::Device { .. }) if must_be_directory => Resolution::Failed(libc::ENOTDIR),
            Some(node) => Resolution::Node(current, node),
            None if differs_from_kernel => {
                Resolution::Outside(if current.is_empty() { "/".to_owned() } else { current })
            }
            None => Resolution::Foreign,
        }
    }

    /// Returns the parent directory. Outside the tree, `path` may contain links of the kernel, which are resolved
    /// first.
    fn parent_of(&self, path: &str) -> String {
        let real = if self.get(path).is_some() { None } else { std::fs::canonicalize(path).ok() };
        let path = real.as_ref().and_then(|real| real.to_str()).unwrap_or(path);
        path.rsplit_once('/').map_or("", |(parent, _)| parent).to_owned()
    }
}

/// Maximum age of a cached tree, because interfaces and addresses change.
const CACHE_AGE_MAX: Duration = Duration::from_millis(50);

/// Maximum number of links followed in one resolution, as in the kernel.
const LINKS_MAX: u32 = 40;

#[cfg(test)]
mod tests {
    use super::*;

    fn real_path(tree: &Tree, path: &str) -> String {
        match tree.resolve(path, true) {
            Resolution::Node(path, _) => path,
            other => panic!("{path}: {other:?}"),
        }
    }

    /// The tree is as consistent as the kernel's: a link has a target, every directory can be reached from the root
    /// of the tree, and every entry that a directory lists exists.
    #[test]
    fn the_tree_is_consistent() {
        let tree = Tree::now();
        let mut links = 0;
        for (path, node) in &tree.nodes {
            if let Node::Link(_) = node {
                links += 1;
                let target_node = tree.resolve(path, true);
                let is_there = match &target_node {
                    Resolution::Node(_, node) => !matches!(node, Node::Link(_)),
                    // A network interface, or the kernel's own class of PCI devices, which a container may not have.
                    Resolution::Outside(real) => {
                        ["/sys/class/net/", "/sys/bus/pci", "/sys/class/"].iter().any(|of| real.starts_with(of))
                    }
                    _ => false,
                };
                assert!(is_there, "{path} has target {target_node:?}");
            }
            let parent = path.rsplit_once('/').expect("paths begin with a slash").0;
            match tree.get(parent) {
                Some(Node::Directory { .. }) => {
                    let name = &path[parent.len() + 1..];
                    assert!(tree.children(parent).any(|(child, _)| child == name), "{path} is not listed");
                }
                Some(other) => panic!("the parent of {path} is {other:?}"),
                // The parent is a directory of the kernel.
                None => assert!(nodes::ROOTS.contains(&path.as_str()), "{path} is not reachable"),
            }
        }
        assert!(links >= 10, "{links} links");
    }

    #[test]
    fn the_parent_of_a_link_is_the_parent_of_its_target() {
        let tree = Tree::now();
        let device = real_path(&tree, "/sys/class/infiniband/rnic0");
        assert!(device.starts_with("/sys/devices/pci") && device.ends_with("/infiniband/rnic0"), "{device}");
        let pci = real_path(&tree, "/sys/class/infiniband/rnic0/device");
        assert_eq!(real_path(&tree, "/sys/class/infiniband/rnic0/../.."), pci);
        assert_eq!(real_path(&tree, "/sys/class//infiniband/./rnic0/device/infiniband/rnic0/"), device);
        let address = pci.rsplit_once('/').expect("a path").1;
        for device_dir in ["/sys/bus/pci/devices/", "/sys/class/infiniband_verbs/uverbs0/device/../"] {
            assert_eq!(real_path(&tree, &format!("{device_dir}{address}")), pci, "{device_dir}");
        }
        let bus = &address[..7];
        assert_eq!(real_path(&tree, &format!("/sys/class/pci_bus/{bus}/../../{address}")), pci, "as NCCL resolves it");
    }

    #[test]
    fn missing_paths_are_distinguished_from_the_kernels() {
        let tree = Tree::now();
        let resolve = |path: &str| tree.resolve(path, true);
        for foreign in
            ["/sys/class/net", "/sys/class/infiniband/mlx5_0/ports", "/dev/infiniband/uverbs1", "/etc", "/", ""]
        {
            assert_eq!(resolve(foreign), Resolution::Foreign, "{foreign}");
        }
        for missing in ["/sys/class/infiniband/rnic0/ports/2", "/sys/class/infiniband/rnic0/ports/1/gids/9999"] {
            assert_eq!(resolve(missing), Resolution::Failed(libc::ENOENT), "{missing}");
        }
        for file in
            ["/sys/class/infiniband/rnic0/fw_ver/", "/sys/class/infiniband/rnic0/fw_ver/x", "/dev/infiniband/uverbs0/x"]
        {
            assert_eq!(resolve(file), Resolution::Failed(libc::ENOTDIR), "{file}");
        }
        assert_eq!(
            resolve("/sys/class/infiniband/rnic0/../../../../../../../etc"),
            Resolution::Outside("/etc".to_owned())
        );
        assert!(matches!(tree.resolve("/sys/class/infiniband/rnic0", false), Resolution::Node(_, Node::Link(_))));
        assert!(matches!(
            tree.resolve("/sys/class/infiniband/rnic0/", false),
            Resolution::Node(_, Node::Directory { .. })
        ));
    }
}
