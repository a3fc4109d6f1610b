//! qemu's command line, and whether hardware virtualization (KVM) can be used.
//!
//! Not here: the life of a machine (`vm`).

use std::path::Path;
use std::time::Duration;

use tokio::sync::OnceCell;

use crate::error::{Error, Result};
use crate::vm::tools::{Tools, WORK};

/// The machine's firmware.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Firmware {
    /// SeaBIOS.
    Bios,
    /// OVMF. Each machine has its own variables.
    Uefi,
}

/// The bus of the machine's disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bus {
    /// Its driver is built into Debian's kernel, so no initramfs is needed. qemu cannot snapshot a machine with it.
    Nvme,
    /// Its driver is a module, which an initramfs must load.
    Virtio,
}

/// What executes the machine's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accelerator {
    /// The processor itself.
    Kvm,
    /// qemu, ten to twenty times slower.
    Emulation,
}

/// A kernel that qemu loads itself, without a boot loader: for disks that have none yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DirectBoot {
    /// Its path, as the programs see it.
    pub(crate) kernel: String,
    pub(crate) arguments: String,
}

/// The parameters of one start of qemu.
#[derive(Debug, Clone)]
pub(crate) struct Start {
    pub(crate) firmware: Firmware,
    pub(crate) accelerator: Accelerator,
    pub(crate) memory_mib: u32,
    /// `DRIVE` of `-drive`, without its id.
    pub(crate) disk: String,
    pub(crate) bus: Bus,
    pub(crate) kernel: Option<DirectBoot>,
    /// Whether [`CARRIED`] is a second disk.
    pub(crate) carries: bool,
    /// The port on this computer's loopback that leads to the machine's ssh server.
    pub(crate) port: u16,
    /// The name of the snapshot in the layer from which the machine continues.
    pub(crate) snapshot: Option<String>,
}

/// Kernel arguments that save time on an emulated processor: no mitigations for faults of real processors, no self-tests of
/// ciphers.
pub(crate) const QUICK_ARGUMENTS: &str = "mitigations=off no_timer_check tsc=reliable cryptomgr.notests";
/// The file in the machine's folder with its UEFI variables.
pub(crate) const VARIABLES: &str = "uefi-variables.fd";
/// The UEFI variables of a new machine, in the programs' root.
pub(crate) const FIRST_VARIABLES: &str = "usr/share/OVMF/OVMF_VARS_4M.fd";
/// The serial log, in the machine's folder.
pub(crate) const SERIAL: &str = "serial.log";
/// The socket in the machine's folder on which qemu accepts commands.
pub(crate) const MONITOR: &str = "monitor";
/// The second disk, in the machine's folder.
pub(crate) const CARRIED: &str = "carried.img";
/// The same disk, as the machine sees it.
pub(crate) const CARRIED_INSIDE: &str = "/dev/disk/by-id/virtio-carried";

impl Start {
    /// The whole command line.
    pub(crate) fn command(&self) -> Vec<String> {
        let (accelerator, cpu) = match self.accelerator {
            Accelerator::Kvm => ("kvm", "host"),
            // Four levels of page tables instead of five: walking them is emulated too. Without fast string instructions, which are
            // emulated byte by byte, Linux copies by words.
            Accelerator::Emulation => ("tcg,thread=multi,tb-size=512", "max,la57=off,erms=off,fsrm=off"),
        };
        let mut words: Vec<String> = [
            "qemu-system-x86_64",
            // Without graphics, SeaBIOS uses the serial port. Without the old timer (PIT), Linux measures the speed of its clock
            // (TSC) with the HPET. With the PIT on a busy computer, it found a tenth of the speed, and its clock ran ten
            // times too fast.
            "-machine",
            "q35,graphics=off,pit=off",
            "-accel",
            accelerator,
            "-cpu",
            cpu,
            // With two emulated processors, one of them may still see code that the other has just patched, and Linux
            // panics in its first seconds. One also needs a sixth less of this computer's time for a boot.
            "-smp",
            "1",
            "-m",
            &self.memory_mib.to_string(),
            "-nodefaults",
            "-display",
            "none",
            "-vga",
            "none",
            "-device",
            // No MSI-X: after a reboot, an emulated machine may still write to an interrupt table that has just moved, and qemu
            // ends with a failed assertion.
            "virtio-rng-pci,vectors=0",
            // A power cut must not truncate the log.
            "-chardev",
            &format!("file,id=serial,path={WORK}/{SERIAL},append=on"),
            "-serial",
            "chardev:serial",
            "-qmp",
            &format!("unix:{WORK}/{MONITOR},server=on,wait=off"),
            "-drive",
            &format!("{},if=none,id=disk,discard=unmap", self.disk),
            "-device",
            match self.bus {
                Bus::Nvme => "nvme,drive=disk,serial=lab,bootindex=1",
                Bus::Virtio => "virtio-blk-pci,drive=disk,bootindex=1,vectors=0",
            },
            "-netdev",
            &format!("user,id=net,hostfwd=tcp:127.0.0.1:{}-:22", self.port),
            "-device",
            "virtio-net-pci,netdev=net,romfile=,vectors=0",
        ]
        .map(str::to_owned)
        .into();
        if self.firmware == Firmware::Uefi {
            let code = "if=pflash,format=raw,readonly=on,file=/usr/share/OVMF/OVMF_CODE_4M.fd";
            let variables = format!("if=pflash,format=raw,file={WORK}/{VARIABLES}");
            words.extend(["-drive".to_owned(), code.to_owned(), "-drive".to_owned(), variables]);
        }
        if self.carries {
            let drive = format!("file={WORK}/{CARRIED},format=raw,if=none,id=carried,readonly=on");
            let device = "virtio-blk-pci,drive=carried,serial=carried,vectors=0".to_owned();
            words.extend(["-drive".to_owned(), drive, "-device".to_owned(), device]);
        }
        if let Some(DirectBoot { kernel, arguments }) = &self.kernel {
            let pairs = [("-kernel", kernel), ("-append", arguments)];
            words.extend(pairs.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value.clone()]));
        }
        if let Some(snapshot) = &self.snapshot {
            words.extend(["-loadvm".to_owned(), snapshot.clone()]);
        }
        words
    }
}

/// The machine's disk: a layer in its folder over a disk in the cache. As on a real disk, a power cut keeps what the guest has
/// flushed, and may lose other writes: on a flush of the guest, qemu writes all pending data to the file. With `unsafe`, it
/// does not sync that file to this computer's own disk, which loses no power.
pub(crate) fn layer() -> String {
    format!("file={WORK}/disk.qcow2,format=qcow2,cache=unsafe")
}

/// A disk image that is being made, as the programs see it. It is discarded if anything fails, so it needs no sync.
pub(crate) fn raw(path: &str) -> String {
    format!("file={path},format=raw,cache=unsafe")
}

/// Creates the layer.
///
/// # Errors
/// qemu-img fails.
pub(crate) async fn make_layer(tools: &Tools, work: &Path, base: &str) -> Result<()> {
    let layer = format!("{WORK}/disk.qcow2");
    let command = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", base, &layer];
    tools.run(work, command, LAYER_LIMIT).await.map(drop)
}

const LAYER_LIMIT: Duration = Duration::from_secs(60);
/// The firmware and a boot sector of a few bytes take a second where KVM works. Where it does not, qemu hangs or ends at once.
const PROBE_LIMIT: Duration = Duration::from_secs(8);

static ACCELERATOR: OnceCell<Accelerator> = OnceCell::const_new();

/// Whether KVM really runs a guest, including firmware; checked once per process. `/dev/kvm` may exist and not work, so a boot
/// sector is run that writes to qemu's exit port.
pub(crate) async fn accelerator(tools: &Tools, work: &Path) -> Result<Accelerator> {
    ACCELERATOR.get_or_try_init(|| probe(tools, work)).await.copied()
}

async fn probe(tools: &Tools, work: &Path) -> Result<Accelerator> {
    if !Path::new("/dev/kvm").exists() {
        return Ok(Accelerator::Emulation);
    }
    let sector = work.join("probe.img");
    std::fs::write(&sector, boot_sector()).map_err(Error::io("write", &sector))?;
    let image = format!("file={WORK}/probe.img,format=raw,if=none,id=disk");
    let words = "qemu-system-x86_64 -machine q35,graphics=off -accel kvm -cpu host -m 64 -nodefaults -display none \
        -device isa-debug-exit,iobase=0xf4,iosize=4 -device virtio-blk-pci,drive=disk,bootindex=1 -drive";
    // Without a shell in between, so that the time limit kills a qemu that hangs.
    let command = words.split_whitespace().chain([image.as_str()]);
    let ended = tools.output(work, command, PROBE_LIMIT).await;
    let works = ended.as_ref().is_ok_and(|output| output.code == PROBED);
    tracing::debug!(works, ?ended, "KVM");
    Ok(if works { Accelerator::Kvm } else { Accelerator::Emulation })
}

/// qemu's exit code after [`boot_sector`]: twice the written value, plus one.
const PROBED: i32 = 33;

/// `mov al, 16; mov dx, 0xf4; out dx, al; hlt`, in a loop, with the boot signature at the end.
fn boot_sector() -> [u8; 512] {
    let mut sector = [0; 512];
    sector[..9].copy_from_slice(&[0xb0, 0x10, 0xba, 0xf4, 0x00, 0xee, 0xf4, 0xeb, 0xfd]);
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    sector
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(firmware: Firmware, accelerator: Accelerator) -> Vec<String> {
        Start {
            firmware,
            accelerator,
            memory_mib: 1024,
            disk: layer(),
            bus: Bus::Virtio,
            kernel: None,
            carries: true,
            port: 2222,
            snapshot: None,
        }
        .command()
    }

    #[test]
    fn a_machine_is_reached_only_from_this_computer() {
        for firmware in [Firmware::Bios, Firmware::Uefi] {
            let words = start(firmware, Accelerator::Emulation);
            let forwards: Vec<&str> = words
                .iter()
                .flat_map(|word| word.split(','))
                .filter(|part| part.contains("hostfwd"))
                .collect();
            assert_eq!(forwards, ["hostfwd=tcp:127.0.0.1:2222-:22"]);
            assert!(!words.iter().any(|word| word.contains("0.0.0.0") || word == "-net"), "{words:?}");
        }
    }

    #[test]
    fn only_uefi_has_variables_and_only_kvm_the_host_s_processor() {
        let count = |words: &[String], what: &str| words.iter().filter(|word| word.contains(what)).count();
        let bios = start(Firmware::Bios, Accelerator::Kvm);
        assert_eq!((count(&bios, "pflash"), count(&bios, "host"), count(&bios, "tcg")), (0, 2, 0));
        let uefi = start(Firmware::Uefi, Accelerator::Emulation);
        assert_eq!((count(&uefi, "pflash"), count(&uefi, "host"), count(&uefi, "tcg,")), (2, 1, 1));
    }
}
