//! What etcd holds once an API server has started with it for the first time: namespaces, roles, priority levels, and the
//! CustomResourceDefinitions that a lab asks for. It is made once, and each control plane begins with a copy, so that its API server
//! finds these objects and does not write them: a third of the work of its start.
//!
//! Guarantees: the copy holds nothing else of ours. An object that is missing in it is made by the API server that starts with it, as always.
//! Not here: what the programs are started with (`launch`).

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::runtime::conditions::is_crd_established;
use kube::runtime::wait::await_condition;
use kube::{Api, Client};

use super::launch::{Ports, api_server_spec, etcd_spec};
use super::outages::copy_tree;
use super::programs::{Program, Programs};
use super::{ControlPlane, ControlPlaneOptions, READY_LIMIT, READY_POLL};
use crate::error::{Error, Result};
use crate::progress::Reporter;
use crate::system::cache::CacheStep;
use crate::system::folder::Folder;

/// What an API server makes after it has said that it is ready.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// The folder to begin with, from the cache. If it is not there, a control plane in `folder` makes it.
///
/// # Errors
/// As [`ControlPlane::start`], or the cache cannot be written.
pub(super) async fn get(
    folder: &Arc<Folder>,
    programs: &Programs,
    definitions: Option<&Path>,
    progress: &Reporter,
) -> Result<PathBuf> {
    let options =
        ControlPlaneOptions { controller_manager: false, scheduler: false, ..ControlPlaneOptions::default() };
    let definitions = definitions.map(|path| fs::read_to_string(path).map_err(Error::io("read", path)));
    let definitions = definitions.transpose()?.unwrap_or_default();
    let mut recipe = recipe(programs, &options)?;
    recipe.push(definitions.clone());
    let recipe: Vec<&str> = recipe.iter().map(String::as_str).collect();
    let step = CacheStep {
        cache: programs.cache(),
        name: "first-data",
        recipe: &recipe,
        telling: "starting an API server for the first time",
    };
    step.get(progress, async |part: &Path| {
        let plane = ControlPlane::start_with(folder, programs, &options, None).await?;
        let client = plane.client().await?;
        settled(&client).await?;
        define(&client, &definitions).await?;
        plane.stop_etcd().await;
        copy_tree(&plane.etcd_data, part)?;
        trim(&part.join("member/wal"))
    })
    .await
}

/// The programs and their command lines.
fn recipe(programs: &Programs, options: &ControlPlaneOptions) -> Result<Vec<String>> {
    let (etcd, api_server) = (programs.existing(Program::Etcd)?, programs.existing(Program::ApiServer)?);
    let mut recipe = vec![];
    for program in [&etcd, &api_server] {
        let about = fs::metadata(program).map_err(Error::io("read", program))?;
        recipe.push(format!("{} bytes of {:?}", about.len(), about.modified().ok()));
    }
    let (at, ports) = (Path::new("/"), Ports { etcd: 0, etcd_peer: 0, api_server: 0 });
    recipe.push(format!("{:?}", etcd_spec(&etcd, at, at, &ports, options.nodes).args));
    recipe.push(format!("{:?}", api_server_spec(&api_server, at, at, &ports, options).args));
    Ok(recipe)
}

/// Waits for the objects that are made last.
async fn settled(client: &Client) -> Result<()> {
    let failed = |what: &str| Error::kube(format!("read {what}"));
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let services: Api<Service> = Api::namespaced(client.clone(), "default");
    let start = Instant::now();
    loop {
        let mut missing = vec![];
        for name in NAMESPACES {
            if namespaces.get_opt(name).await.map_err(failed(name))?.is_none() {
                missing.push(name);
            }
        }
        if services.get_opt("kubernetes").await.map_err(failed("the service kubernetes"))?.is_none() {
            missing.push("the service kubernetes");
        }
        if missing.is_empty() {
            return Ok(());
        }
        if start.elapsed() > READY_LIMIT {
            return Err(Error::Timeout {
                what: "the first objects of the API server".to_owned(),
                waited: READY_LIMIT,
                detail: format!("missing: {}", missing.join(", ")),
            });
        }
        tokio::time::sleep(READY_POLL).await;
    }
}

/// The field manager of the operator, so that `mco install` finds that nothing is to be changed.
const FIELD_MANAGER: &str = api::names::part::OPERATOR;

/// Applies the CustomResourceDefinitions of this YAML, and waits until the API server serves them.
async fn define(client: &Client, yaml: &str) -> Result<()> {
    let invalid = |why: String| Error::Options(format!("the CustomResourceDefinitions to begin with: {why}"));
    let documents = api::formats::yaml::documents(yaml).map_err(|error| invalid(client::chain(&error)))?;
    let all: Api<CustomResourceDefinition> = Api::all(client.clone());
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let mut names = vec![];
    for document in &documents {
        let name =
            document["metadata"]["name"].as_str().ok_or_else(|| invalid("one has no name".to_owned()))?;
        let failed = Error::kube(format!("apply CustomResourceDefinition {name}"));
        all.patch(name, &params, &Patch::Apply(document)).await.map_err(failed)?;
        names.push(name);
    }
    for name in names {
        let late = |detail: String| Error::Timeout {
            what: format!("CustomResourceDefinition {name}"),
            waited: READY_LIMIT,
            detail,
        };
        let established = await_condition(all.clone(), name, is_crd_established());
        match tokio::time::timeout(READY_LIMIT, established).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(late(client::chain(&error))),
            Err(_) => return Err(late("the API server does not serve it".to_owned())),
        }
    }
    Ok(())
}

/// etcd's unit for its log: it writes whole ones.
const PAGE: u64 = 4096;

/// etcd gives its log 64 MB ahead of time, and prepares the next file. Only what is written is kept, and zeros behind it, by which etcd
/// knows the end.
fn trim(log: &Path) -> Result<()> {
    for entry in fs::read_dir(log).map_err(Error::io("list", log))? {
        let path = entry.map_err(Error::io("list", log))?.path();
        if path.extension().is_some_and(|extension| extension == "tmp") {
            fs::remove_file(&path).map_err(Error::io("remove", &path))?;
            continue;
        }
        let cut = || {
            let file = fs::OpenOptions::new().read(true).write(true).open(&path)?;
            let length = file.metadata()?.len();
            let mut pages = length.div_ceil(PAGE);
            let mut page = [0; 4096];
            while pages > 0 {
                let at = (pages - 1) * PAGE;
                let size = usize::try_from(PAGE.min(length - at)).map_err(std::io::Error::other)?;
                file.read_exact_at(&mut page[..size], at)?;
                if page[..size].iter().any(|byte| *byte != 0) {
                    break;
                }
                pages -= 1;
            }
            file.set_len((pages + 1) * PAGE)
        };
        cut().map_err(Error::io("shorten", &path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_keeps_what_is_written_and_one_page_of_zeros() {
        let dir = tempfile::tempdir().unwrap();
        let page = usize::try_from(PAGE).unwrap();
        for (written, length, want) in [(0, 0, 1), (0, 9, 1), (1, 3, 2), (1, 64, 2), (2, 64, 3), (64, 64, 65)]
        {
            let path = dir.path().join("0.wal");
            let mut bytes = vec![7; written * page];
            bytes.resize(length * page, 0);
            fs::write(&path, &bytes).unwrap();
            fs::write(dir.path().join("1.tmp"), "").unwrap();
            trim(dir.path()).unwrap();
            bytes.resize(want * page, 0);
            assert_eq!(fs::read(&path).unwrap(), bytes, "{written} of {length}");
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        }
    }
}
