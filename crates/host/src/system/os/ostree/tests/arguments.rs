//! Kernel arguments on a host of OSTree: they are staged on the commit that runs, and found in the entry that has booted.

use super::*;

#[test]
fn arguments_alone_are_staged_on_the_commit_that_runs_and_undone() {
    for images in [Images::Bootc, Images::Container, Images::None] {
        let mut rig = Rig::new(images);
        let now = rig.now();
        assert_eq!(now.image, "registry.lab:5055/lab/os:latest");
        assert_eq!(now.kernel_arguments, ["root=LABEL=root", "rw", "console=ttyS0", "lab.karg=v4"]);
        let mut target = now.clone();
        target.kernel_arguments =
            ["root=LABEL=root", "rw", "lab.karg=v4", "nosmt"].map(str::to_owned).to_vec();
        rig.asks(1, false);
        rig.os.fetch(&target, &Pull::default()).unwrap();
        rig.asks(1, false);
        let before = rig.os.mark().unwrap();
        rig.asks(2, false);
        rig.talk.says(
            &format!(
                "/usr/bin/ostree admin deploy --stage --os=debian \
                 --origin-file=/ostree/deploy/debian/deploy/{BOOTED}.0.origin --karg-delete=console=ttyS0 \
                 --karg-append=nosmt {BOOTED}"
            ),
            "",
        );
        // The fake has one recorded staged deployment, of another image.
        rig.put(
            &format!("ostree/deploy/debian/deploy/{STAGED}.0.origin"),
            "[origin]\ncontainer-image-reference=ostree-unverified-registry:registry.lab:5055/lab/os:latest\n",
        );
        let staged = |rig: &Rig| {
            rig.talk.says(ADMIN, admin(true));
            if images == Images::Bootc {
                rig.talk.says(BOOTC_STATUS, bootc(true).replace(":v3\"", ":latest\""));
            }
        };
        staged(&rig);
        rig.os.stage(&target).unwrap();
        staged(&rig);
        assert_eq!(rig.os.status().unwrap().next(), &target);
        staged(&rig);
        rig.talk.says("/usr/bin/ostree admin undeploy 0", "");
        rig.asks(1, false);
        rig.os.undo(&before).unwrap();
        rig.asks(1, false);
        rig.os.undo(&before).unwrap();
        rig.talk.done();
    }
}

#[test]
fn an_argument_that_was_removed_at_the_prompt_once_is_in_the_next_deployment() {
    let mut rig = Rig::new(Images::Container);
    rig.put("usr/libexec/libostree/ext/ostree-container", "");
    rig.put("proc/cmdline", &format!("BOOT_IMAGE=/v rw console=ttyS0 {MARK} lab.karg=v4\n"));
    let mut target = rig.now();
    rig.asks(1, false);
    assert_eq!(rig.os.status().unwrap().booted.kernel_arguments, ["rw", "console=ttyS0", "lab.karg=v4"]);
    target.image = V3.to_owned();
    rig.asks(2, false);
    let deploy = format!(
        "container image deploy --sysroot / --stateroot debian --imgref ostree-unverified-registry:{V3} \
         --karg=root=LABEL=root --karg=rw --karg=console=ttyS0 --karg=lab.karg=v4"
    );
    // A repository that does not know the name.
    rig.talk.fails(REV_PARSE, "error: Refspec not found").says(&writable(&deploy), "");
    rig.asks(2, true);
    rig.os.stage(&target).unwrap();
    rig.talk.done();
    // What bootc cannot be given is refused while the node is in service.
    rig.os.images = Images::Bootc;
    let target =
        Deployment { image: "ostree-remote-registry:lab:registry.lab:5055/lab/os:v9".to_owned(), ..target };
    rig.asks(1, true);
    let why = rig.os.fetch(&target, &Pull::default()).unwrap_err().why;
    assert!(why.contains("bootc cannot be given ostree-remote"), "{why}");
}

#[test]
fn an_entry_is_found_by_the_deployment_that_its_link_names_or_the_change_is_refused() {
    let mut rig = Rig::new(Images::None);
    // OSTree has written the entries anew since the boot.
    for (entry, link, one, more) in [
        ("1", "boot.1/debian/9c6c/0", format!("{BEFORE}.1"), "old"),
        ("2", "boot.1/debian/9c6c/1", format!("{BOOTED}.0"), "new"),
    ] {
        let at = rig.dir.path().join("ostree").join(link);
        std::fs::create_dir_all(at.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(format!("../../../deploy/debian/deploy/{one}"), at).unwrap();
        rig.put(
            &format!("boot/loader/entries/ostree-{entry}.conf"),
            &format!("options root=LABEL=root {more} ostree=/ostree/{link}\n"),
        );
    }
    assert_eq!(rig.now().kernel_arguments, ["root=LABEL=root", "new"]);
    std::fs::remove_file(rig.dir.path().join("boot/loader/entries/ostree-2.conf")).unwrap();
    rig.asks(1, false);
    let why = rig.os.status().unwrap_err().why;
    assert!(why.contains(BOOTED) && why.contains("/boot/loader/entries"), "{why}");
    rig.talk.done();
}
