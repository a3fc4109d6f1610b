//! Tests of `dbus`.

use std::sync::{Arc, Mutex};

use futures::StreamExt as _;
use tokio::net::UnixListener;

use super::*;

/// Stands for systemd's own socket, without a bus. The first `breaks` connections end when they have brought a call. Returns the
/// methods that were called.
fn fake_socket(root: &Path, breaks: usize) -> Arc<Mutex<Vec<String>>> {
    let folder = root.join("run/systemd");
    std::fs::create_dir_all(&folder).unwrap();
    let listener = UnixListener::bind(folder.join("private")).unwrap();
    let called = Arc::new(Mutex::new(vec![]));
    let seen = called.clone();
    tokio::spawn(async move {
        for connection in 0.. {
            let stream = listener.accept().await.unwrap().0.into_std().unwrap();
            let builder = zbus::connection::Builder::unix_stream(stream);
            let server = builder.server(zbus::Guid::generate()).p2p().build().await.unwrap();
            let mut messages = zbus::MessageStream::from(&server);
            while let Some(Ok(message)) = messages.next().await {
                let header = message.header();
                seen.lock().unwrap().push(header.member().unwrap().to_string());
                if connection < breaks {
                    break;
                }
                server.reply(&header, &()).await.unwrap();
            }
        }
    });
    called
}

/// In a shutdown that has begun, the bus goes away before it has answered.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_after_a_broken_connection_makes_a_new_one() {
    for (breaks, reboots, reloads) in [(0, true, true), (1, true, true), (2, false, true)] {
        let root = tempfile::tempdir().unwrap();
        let called = fake_socket(root.path(), breaks);
        let mut systemd = DbusSystemd::new(Handle::current(), root.path());
        let why = Rationale("a test".to_owned());
        let ended = tokio::task::spawn_blocking(move || (systemd.reboot(&why), systemd.daemon_reload()));
        let (reboot, reload) = ended.await.unwrap();
        assert_eq!((reboot.is_ok(), reload.is_ok()), (reboots, reloads), "{breaks}: {reboot:?} {reload:?}");
        let all = [vec!["Reboot"; breaks.min(1) + 1], vec!["Reload"]].concat();
        assert_eq!(*called.lock().unwrap(), all, "{breaks}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_template_does_not_run_and_systemd_is_not_asked_about_it() {
    let root = tempfile::tempdir().unwrap();
    let called = fake_socket(root.path(), 0);
    let mut systemd = DbusSystemd::new(Handle::current(), root.path());
    let said = move || {
        let states = ["getty@.service", "w@.timer"].map(|unit| systemd.is_running(unit).ok());
        // This socket answers nothing that can be read.
        (states, systemd.was_started("a@.service").ok(), systemd.is_running("a@b.service").is_err())
    };
    let said = tokio::task::spawn_blocking(said).await.unwrap();
    assert_eq!(said, ([Some(false); 2], Some(false), true));
    assert_eq!(*called.lock().unwrap(), ["ListUnitsByNames"], "about the instance");
}
