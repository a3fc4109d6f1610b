//! The in-cluster dashboard in a browser, over HTTPS: signing in, signing out, and a token that expires.
//!
//! Not here: headers of a proxy, and authorisation, which need no browser (`crates/dashboard`).

use crate::chromium::Chromium;
use crate::dashboard::APP;
use crate::views::{fleet, in_colours, live, origin, serious};
use ::lab::{Environment, FleetApi, Reporter};
use serde_json::json;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::Stdio;
use tokio::process::{Child, Command};

const NODES: usize = 20;

/// Starts the dashboard on a free port; returns its address once it answers.
async fn program(kubeconfig: &Path) -> (Child, String) {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let child = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "--"])
        .arg(::lab::built_mco().unwrap())
        .args(["dashboard", "--in-cluster", "--listen", &format!("127.0.0.1:{port}"), "--kubeconfig"])
        .arg(kubeconfig)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    while tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_err() {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    (child, format!("https://localhost:{port}/"))
}

/// Types a token into the page to sign in.
async fn sign_in(browser: &mut Chromium, token: &str) {
    // Before the page is complete its script does not run yet, and a submitted form would only load the page again.
    browser.wait("document.readyState === 'complete' && document.getElementById('token')").await;
    browser.value(&format!("document.getElementById('token').value = {token:?}"));
    browser.value("document.querySelector('form button').click()");
}

async fn shows_form(browser: &mut Chromium) {
    browser.wait("document.getElementById('token')").await;
    let text = browser.value("document.body.innerText");
    assert!(!text.as_str().unwrap().contains("node-"), "{text}");
}

fn known(fleet: &FleetApi) {
    fleet.know("token-of-jane", "jane");
    fleet.know("token-of-ann", "ann");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_signs_in_and_out_and_a_token_that_ends_takes_the_page_with_it() {
    let Some((fleet, folder)) = fleet(NODES, "").await else { return };
    known(&fleet);
    let (mut child, address) = program(&folder.path().join("kubeconfig")).await;
    let mut browser = Chromium::start();
    // The dashboard made its certificate itself.
    browser.ask("Security.setIgnoreCertificateErrors", json!({"ignore": true}));
    browser.open(&address);
    shows_form(&mut browser).await;
    sign_in(&mut browser, "token-of-nobody").await;
    browser.wait("document.getElementById('said').textContent.includes('does not know this token')").await;
    // The sign-in page has no accessibility problem, in dark and light, with and without an error on it. axe is not one of the
    // page's own scripts, so its content security policy has to be bypassed; then the page is reloaded as it is.
    let axe = json!(::lab::axe(&Environment::read().cache, &Reporter::stderr()).await.unwrap()).to_string();
    browser.ask("Page.setBypassCSP", json!({"enabled": true}));
    for scheme in ["light", "dark"] {
        browser.open(&address);
        in_colours(&mut browser, scheme);
        for token in [None, Some("token-of-nobody")] {
            if let Some(token) = token {
                sign_in(&mut browser, token).await;
                browser.wait("document.getElementById('said').textContent !== ''").await;
            }
            shows_form(&mut browser).await;
            assert_eq!(serious(&mut browser, &axe, scheme), Vec::<String>::new());
        }
    }
    browser.ask("Page.setBypassCSP", json!({"enabled": false}));
    browser.open(&address);
    sign_in(&mut browser, "token-of-jane").await;
    live(&mut browser, NODES).await;
    browser.wait("document.getElementById('user').textContent === 'jane'").await;
    assert_eq!(browser.value("document.cookie"), json!(""), "no script reads the cookie");
    let kept = "JSON.stringify([{...localStorage}, {...sessionStorage}, document.body.innerText])";
    let kept = browser.value(kept);
    assert!(!kept.as_str().unwrap().contains("token-of-jane"), "{kept}");

    // A text larger than the server accepts: the browser can read the server's refusal.
    browser.value("location.hash = '#/configs'");
    browser.wait("document.getElementById('manifest')").await;
    // Hidden, because a browser takes minutes to lay out such a text.
    browser.value("document.getElementById('manifest').hidden = true");
    browser.value(&format!("document.getElementById('manifest').value = '#'.repeat({})", 9 << 20));
    browser.value("document.querySelector('[data-check]').click()");
    browser.wait("/(more than|does not answer)/.test(document.querySelector('main').innerText)").await;
    let said = browser.value("document.querySelector('main section').innerText");
    assert!(said.as_str().unwrap().contains("more than 2 MiB is not accepted here"), "{said}");

    // After signing out there is only the form; going back shows nothing of the cluster either.
    browser.value("document.getElementById('sign-out').click()");
    shows_form(&mut browser).await;
    browser.open(&format!("{address}api/snapshot"));
    browser.wait("document.body.innerText.includes('sign in')").await;
    browser.open(&address);
    shows_form(&mut browser).await;

    // Another person; her token expires while the page is open.
    sign_in(&mut browser, "token-of-ann").await;
    live(&mut browser, NODES).await;
    browser.wait("document.getElementById('user').textContent === 'ann'").await;
    fleet.forget("token-of-ann");
    let says = "document.getElementById('connection').textContent.includes('session has ended')";
    let took = browser.wait(says).await;
    println!("a token that ended had ended the page after {took:?}");
    fleet.step("node-3", 0, "after the end");
    let seen = browser.value(&format!("{APP}.then((m) => m.store.nodes.get('node-3').why)"));
    assert!(!seen.as_str().unwrap().contains("after the end"), "{seen}");
    browser.open(&address);
    shows_form(&mut browser).await;

    let complaints = browser.complaints(origin(&address).trim_end_matches('/'));
    // The browser logs refused requests as errors on the console.
    let refused = |c: &String| c.contains("401") || c.contains("413");
    let others: Vec<_> = complaints.iter().filter(|c| !refused(c)).collect();
    assert!(others.is_empty(), "{others:?}");
    assert!(child.try_wait().unwrap().is_none(), "it serves still");
}
