//! A fake OSTree on machines of systemd-nspawn: scripts that answer like `ostree` and `ostree container`. They neither
//! pull nor stage a real image; they only let the next boot report the image that was staged.
//!
//! If the script [`PULL`] exists on the machine, it runs instead of a pull, with the image's reference as its argument. It may
//! take long, print progress, or fail.
//!
//! Not here: OSTree itself (see `vm::ostree`).

use crate::lab::spec::LabBuilder;

/// The script that is run instead of a pull.
pub const PULL: &str = "/var/lib/lab-ostree/pull";

/// `ostree`. A deployment's checksum is one character, repeated. It has at most one image: the one that was pulled last.
const OSTREE: &str = r#"#!/bin/sh
s=/var/lib/lab-ostree
sum() { printf "$1%.0s" $(seq 64); }
one() { printf '%s debian %s.0%s\n    origin: <unknown origin type>\n' "$1" "$(sum "$2")" "$3"; }
next=$(($(cat $s/booted) + 1))
stage() {
    mkdir -p /ostree/deploy/debian/deploy /run/ostree
    cat >/ostree/deploy/debian/deploy/$(sum $next).0.origin
    echo $next >$s/staged
    : >/run/ostree/staged-deployment
}
case "$1 $2 $3" in
"admin status ")
    if [ -e $s/staged ]; then one ' ' "$(cat $s/staged)" ' (staged)'; fi
    one '*' "$(cat $s/booted)" ''
    if [ -e $s/previous ]; then one ' ' "$(cat $s/previous)" ' (rollback)'; fi ;;
"container image pull")
    if [ -x $s/pull ]; then $s/pull "$5" || exit; fi
    : >$s/pulled ;;
"container image metadata")
    printf '{"architecture":"ARCH","os":"linux","config":{"Labels":{"ostree.bootable":"true"}}}\n' ;;
"rev-parse --repo=/ostree/repo "*)
    if [ ! -e $s/pulled ]; then echo "error: Refspec '$3' not found" >&2; exit 1; fi
    sum $next ;;
"admin deploy --stage")
    for word; do
        case "$word" in --origin-file=*) stage <"${word#*=}" ;; esac
    done
    rm -f $s/pulled ;;
"admin undeploy 0") rm -f $s/staged /run/ostree/staged-deployment ;;
*) echo "the fake does not know: $*" >&2; exit 1 ;;
esac
"#;

/// Runs at boot, before the agent and its recovery: turns the staged deployment into the booted one.
const BOOT: &str = r#"#!/bin/sh
set -eu
s=/var/lib/lab-ostree
sum() { printf "$1%.0s" $(seq 64); }
mkdir -p $s /sysroot /boot/loader/entries /ostree/boot.1/debian/x /ostree/deploy/debian/deploy
if [ -e $s/staged ]; then
    mv $s/booted $s/previous
    mv $s/staged $s/booted
fi
if [ ! -e $s/booted ]; then
    echo 1 >$s/booted
    printf '[origin]\ncontainer-image-reference=ostree-unverified-registry:IMAGE\n' \
        >/ostree/deploy/debian/deploy/$(sum 1).0.origin
fi
ln -sfn ../../../deploy/debian/deploy/$(sum $(cat $s/booted)).0 /ostree/boot.1/debian/x/0
printf 'options %s ostree=/ostree/boot.1/debian/x/0\n' "$(cat /proc/cmdline)" >/boot/loader/entries/ostree-1.conf
mount --bind /sysroot /sysroot
: >/run/ostree-booted
"#;
const BOOT_UNIT: &str = "[Unit]\nDefaultDependencies=no\nAfter=local-fs.target\nBefore=machine-config-daemon-recover.service \
    machine-config-daemon.service\n\n[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/usr/local/sbin/lab-ostree-boot\n\n\
    [Install]\nWantedBy=multi-user.target\n";

impl LabBuilder {
    /// Makes every real node look like a host of OSTree that has booted this image.
    pub fn fake_ostree(self, image: &str) -> Self {
        let architecture = crate::architecture(std::env::consts::ARCH);
        self.node_file("/usr/bin/ostree", 0o755, OSTREE.replace("ARCH", architecture))
            .node_file("/usr/libexec/libostree/ext/ostree-container", 0o755, "#!/bin/sh\nexit 1\n")
            .node_file("/usr/local/sbin/lab-ostree-boot", 0o755, BOOT.replace("IMAGE", image))
            .node_service("lab-ostree-boot.service", BOOT_UNIT)
    }
}
