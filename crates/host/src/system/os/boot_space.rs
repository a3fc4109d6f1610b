//! Whether `/boot` has room for another kernel, before an image is fetched. OSTree keeps a folder for each kernel there,
//! and frees those that do not run before it writes a new one.

use crate::disk::root::Root;
use crate::system::os::OsError;
use crate::system::os::arguments::CMDLINE;

const FOLDER: &str = "/boot/ostree";
/// Boot loader entries, and a kernel that is larger than the one before.
const SPARE: u64 = 8 * 1024 * 1024;

/// Checks it. A host whose running kernel is not in such a folder is not checked.
///
/// # Errors
/// There is too little, with the numbers and what to remove.
pub(super) fn check(root: &Root) -> Result<(), OsError> {
    let cmdline = root.text(CMDLINE)?.unwrap_or_default();
    // `ostree=/ostree/boot.N/ROOT/CHECKSUM/N`
    let mark = cmdline.split_whitespace().find_map(|w| w.strip_prefix("ostree=/ostree/boot."));
    let mut parts = mark.unwrap_or_default().split('/').skip(1);
    let (Some(stateroot), Some(checksum)) = (parts.next(), parts.next()) else { return Ok(()) };
    let runs = format!("{stateroot}-{checksum}");
    let size = |name: &str| -> Result<u64, OsError> {
        let folder = format!("{FOLDER}/{name}");
        let mut all = 0;
        for file in root.list(&folder)? {
            all += root.len(&format!("{folder}/{file}"))?;
        }
        Ok(all)
    };
    let need = match size(&runs)? {
        0 => return Ok(()),
        bytes => bytes + SPARE,
    };
    let (_, free) = root.space(&format!("{FOLDER}/{runs}"))?;
    let mut others = 0;
    for name in root.list(FOLDER)?.iter().filter(|n| **n != runs) {
        others += size(name)?;
    }
    enough(need, free + others).map_err(OsError::new)
}

fn enough(need: u64, can_be_had: u64) -> Result<(), String> {
    if need <= can_be_had {
        return Ok(());
    }
    Err(format!(
        "/boot: {need} bytes are needed for another kernel, and {can_be_had} are free or can be freed; remove what does \
         not belong there, or unpin deployments (ostree admin status)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_needs_what_the_running_one_has_and_a_little_more() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let put = |path: &str, bytes: usize| {
            let at = dir.path().join(path);
            std::fs::create_dir_all(at.parent().unwrap()).unwrap();
            std::fs::write(at, vec![b'x'; bytes]).unwrap();
        };
        std::fs::create_dir_all(dir.path().join("proc")).unwrap();
        std::fs::write(dir.path().join("proc/cmdline"), "ro ostree=/ostree/boot.0/debian/abc/0 quiet\n")
            .unwrap();
        check(&root).unwrap();
        put("boot/ostree/debian-abc/vmlinuz-6.1", 1000);
        put("boot/ostree/debian-def/vmlinuz-6.0", 1000);
        check(&root).unwrap();
        // A file without contents on the disk is as large as it says.
        let large =
            std::fs::File::create(dir.path().join("boot/ostree/debian-abc/initramfs-6.1.img")).unwrap();
        large.set_len(1 << 43).unwrap();
        let why = check(&root).unwrap_err().why;
        assert!(why.starts_with("/boot: 87961") && why.contains("unpin"), "{why}");
        // Another deployment's kernel can be freed.
        let other =
            std::fs::File::create(dir.path().join("boot/ostree/debian-def/initramfs-6.0.img")).unwrap();
        other.set_len(1 << 43).unwrap();
        let freed = check(&root).map_err(|e| e.why);
        assert!(freed.is_ok(), "{freed:?}");
    }
}
