//! Writes GRUB's two stages to a disk image with a GUID partition table, as `grub-install` does on a real disk.
//!
//! Layout (GRUB's `grub-core/boot/i386/pc/boot.S` and `diskboot.S`): the boot sector holds the 64-bit number of the sector at
//! which the second stage begins; that stage's first sector ends with a list of the sectors that follow it.
//!
//! Not here: how the second stage is made (`recipes/ostree-grub.sh`).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::error::{Error, Result};

const SECTOR: usize = 512;
/// The first sector of the partition for the second stage.
const SECOND_STAGE: u64 = 2048;
/// That partition's size.
const ROOM: usize = 1 << 20;
/// Offset in the boot sector: the first sector of the second stage.
const KERNEL_SECTOR: usize = 0x5c;
/// Offset in the boot sector: a jump past the check of the drive number that the BIOS passes. For a hard disk, GRUB's installer
/// puts two no-ops in its place, so that the check is made.
const DRIVE_CHECK: usize = 0x66;
const NO_OPS: [u8; 2] = [0x90, 0x90];
/// The boot sector's code; the partition table follows.
const CODE: usize = 440;
/// Offset in the second stage's first sector: the only entry of its block list, made of the first sector, the number of
/// sectors, and the segment to load them to.
const LIST: usize = SECTOR - 12;
const SEGMENT: u16 = 0x820;

/// Writes both stages.
///
/// # Errors
/// A file cannot be read or written, or the second stage does not fit.
pub(crate) fn embed(boot: &Path, core: &Path, disk: &Path) -> Result<()> {
    let mut first = std::fs::read(boot).map_err(Error::io("read", boot))?;
    let mut second = std::fs::read(core).map_err(Error::io("read", core))?;
    second.resize(second.len().next_multiple_of(SECTOR), 0);
    if first.len() != SECTOR || second.len() < 2 * SECTOR || second.len() > ROOM {
        return Err(Error::Options(format!(
            "GRUB's stages {} and {} have {} and {} bytes: not one sector, and two sectors to 1 MiB",
            boot.display(),
            core.display(),
            first.len(),
            second.len()
        )));
    }
    put(&mut first, KERNEL_SECTOR, &SECOND_STAGE.to_le_bytes());
    put(&mut first, DRIVE_CHECK, &NO_OPS);
    let rest = u16::try_from(second.len() / SECTOR - 1).unwrap_or(u16::MAX);
    put(&mut second, LIST, &(SECOND_STAGE + 1).to_le_bytes());
    put(&mut second, LIST + 8, &rest.to_le_bytes());
    put(&mut second, LIST + 10, &SEGMENT.to_le_bytes());
    let file = File::options().write(true).open(disk).map_err(Error::io("open", disk))?;
    first.truncate(CODE);
    file.write_all_at(&first, 0).map_err(Error::io("write", disk))?;
    file.write_all_at(&second, SECOND_STAGE * SECTOR as u64).map_err(Error::io("write", disk))
}

fn put(sector: &mut [u8], at: usize, bytes: &[u8]) {
    for (to, from) in sector.iter_mut().skip(at).zip(bytes) {
        *to = *from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_partition_table_stays_and_the_second_stage_is_found_by_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("boot"), [1; SECTOR]).unwrap();
        std::fs::write(path("core"), vec![2; 3 * SECTOR + 1]).unwrap();
        std::fs::write(path("disk"), vec![9; 2 << 20]).unwrap();
        embed(&path("boot"), &path("core"), &path("disk")).unwrap();
        let disk = std::fs::read(path("disk")).unwrap();
        assert!(disk[CODE..SECTOR].iter().all(|byte| *byte == 9), "the partition table is overwritten");
        let begin = u64::from_le_bytes(disk[0x5c..0x64].try_into().unwrap());
        let at = usize::try_from(begin).unwrap() * SECTOR;
        assert_eq!(&disk[at..at + 4], &[2; 4]);
        let list = &disk[at + SECTOR - 12..at + SECTOR];
        assert_eq!(u64::from_le_bytes(list[..8].try_into().unwrap()), begin + 1);
        assert_eq!(&list[8..], &[3, 0, 0x20, 0x08]);
        assert_eq!(disk[at + 4 * SECTOR], 9, "three sectors and a padded one");

        std::fs::write(path("core"), vec![2; ROOM + 1]).unwrap();
        let error = embed(&path("boot"), &path("core"), &path("disk")).unwrap_err().to_string();
        assert!(error.contains("1049088 bytes"), "{error}");
    }
}
