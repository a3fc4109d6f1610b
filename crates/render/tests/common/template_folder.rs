//! Reads a folder of templates.

use render::TemplateSet;
use std::path::Path;

/// Every file below `root`, by its path from there.
pub(crate) fn read(root: &Path) -> TemplateSet {
    fn walk(root: &Path, dir: &Path, all: &mut Vec<(String, String)>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(root, &path, all);
            } else {
                let relative = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                all.push((relative, std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    let mut all = vec![];
    walk(root, root, &mut all);
    TemplateSet::from_map(all)
}
