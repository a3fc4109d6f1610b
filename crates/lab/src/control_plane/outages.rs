//! Outages of a control plane: the API server is stopped and started again, and etcd's data is put back to an earlier state.
//!
//! Not here: faults of a network or of single requests (see `proxy`).

use std::fs;
use std::path::Path;

use tokio::net::TcpSocket;

use super::{ControlPlane, STOP_GRACE};
use crate::error::{Error, Result};
use crate::system::process::{Process, Signal, lock};

impl ControlPlane {
    /// Stops the API server, as in an outage. etcd keeps the data.
    pub async fn stop_api_server(&self) {
        let taken = lock(&self.api_server).take();
        if let Some(process) = taken {
            process.stop(Signal::KILL, STOP_GRACE).await;
        }
        // Nobody else may get its port in the meantime; connections are still refused.
        let held = TcpSocket::new_v4().and_then(|socket| {
            socket.set_reuseaddr(true)?;
            socket.bind(self.server)?;
            Ok(socket)
        });
        *lock(&self.held) = held.ok();
    }

    /// Starts the API server again at the same address and waits until it is ready.
    ///
    /// # Errors
    /// When it dies or does not become ready.
    pub async fn start_api_server(&self) -> Result<()> {
        if lock(&self.api_server).is_none() {
            drop(lock(&self.held).take());
            let process = Process::spawn(self.api_server_spec.clone(), self.folder.path())?;
            *lock(&self.api_server) = Some(process);
        }
        self.wait_ready().await
    }

    /// Saves a copy of etcd's data for [`ControlPlane::restore_etcd`]. The API server is stopped in the meantime.
    ///
    /// # Errors
    /// When a program does not come back, or the copy cannot be made.
    pub async fn back_up_etcd(&self) -> Result<()> {
        self.with_etcd_down(copy_tree).await
    }

    /// Restores the saved data, as an administrator does after a disaster. Afterwards the revisions of etcd, and with
    /// them the resource versions of all objects, are lower than those that clients have seen.
    ///
    /// # Errors
    /// As [`ControlPlane::back_up_etcd`].
    pub async fn restore_etcd(&self) -> Result<()> {
        self.with_etcd_down(|data, copy| copy_tree(copy, data)).await
    }

    /// Stops the API server, and then etcd in order.
    pub(super) async fn stop_etcd(&self) {
        self.stop_api_server().await;
        let taken = lock(&self.etcd).take();
        if let Some(process) = taken {
            process.stop(Signal::TERM, STOP_GRACE).await;
        }
    }

    async fn with_etcd_down(&self, work: impl FnOnce(&Path, &Path) -> Result<()>) -> Result<()> {
        self.stop_etcd().await;
        work(&self.etcd_data, &self.etcd_data.with_extension("backup"))?;
        let process = Process::spawn(self.etcd_spec.clone(), self.folder.path())?;
        *lock(&self.etcd) = Some(process);
        self.start_api_server().await
    }
}

/// Copies the folder `from` to `to`, replacing what is there.
pub(super) fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    if to.exists() {
        fs::remove_dir_all(to).map_err(Error::io("remove", to))?;
    }
    fs::create_dir_all(to).map_err(Error::io("make", to))?;
    for entry in fs::read_dir(from).map_err(Error::io("list", from))? {
        let entry = entry.map_err(Error::io("list", from))?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if source.is_dir() {
            copy_tree(&source, &target)?;
        } else {
            fs::copy(&source, &target).map_err(Error::io("copy", &source))?;
        }
    }
    Ok(())
}
