//! Tests of `user_data`: tables of Secrets and of what is written.

use super::*;
use api::v1::MachineConfigPoolSpec;
use serde_json::json;

fn mk_pools() -> Vec<MachineConfigPool> {
    ["worker", "infra"].map(|p| MachineConfigPool::new(p, MachineConfigPoolSpec::default())).into()
}

fn mk_foreign(config: &Value) -> Secret {
    let mut secret = Secret::default();
    secret.metadata.name = Some("worker-user-data".to_owned());
    secret.data = Some([(USER_DATA.to_owned(), ByteString(config.to_string().into_bytes()))].into());
    secret
}

struct World {
    ca: &'static str,
    pools: Vec<MachineConfigPool>,
    secrets: Vec<Secret>,
    tokens: Option<Vec<Record>>,
    random: u8,
}

impl World {
    /// One pass: the names of the Secrets that it wrote, and of those that it left alone.
    fn pass(&mut self) -> (Vec<String>, Vec<String>) {
        let facts = Facts {
            host: "api-int.example.com",
            ca: self.ca.as_bytes(),
            pools: &self.pools,
            secrets: &self.secrets,
            tokens: self.tokens.as_deref(),
            now: Timestamp::UNIX_EPOCH,
        };
        let random = &mut self.random;
        let plan = plan(&facts, || {
            *random += 1;
            [*random; ENTROPY]
        });
        let mut written = vec![];
        for Write { secret, token, .. } in plan.writes {
            written.push(secret.metadata.name.clone().unwrap_or_default());
            self.secrets.retain(|s| s.metadata.name != secret.metadata.name);
            self.secrets.push(secret);
            if let Some(tokens) = &mut self.tokens {
                tokens.extend(token);
            }
        }
        (written, plan.left.iter().map(ToString::to_string).collect())
    }

    fn config(&self, name: &str) -> Value {
        config_of(self.secrets.iter().find(|s| s.metadata.name.as_deref() == Some(name)).unwrap()).unwrap()
    }
}

fn mk(tokens: Option<Vec<Record>>) -> World {
    World { ca: "CA 1", pools: mk_pools(), secrets: vec![], tokens, random: 0 }
}

#[test]
fn each_pool_has_user_data_that_follows_the_ca_and_is_else_left_alone() {
    let mut world = mk(None);
    let both = ["worker-user-data-managed", "infra-user-data-managed"].map(str::to_owned);
    assert_eq!(world.pass().0, both);
    assert!(world.pass().0.is_empty());
    assert_eq!(pointer::token(&world.config(&both[0])), None);
    world.ca = "CA 2";
    assert_eq!(world.pass().0, both);
    world.pools.pop();
    world.ca = "CA 3";
    assert_eq!(world.pass().0, both[..1]);
}

#[test]
fn an_installers_user_data_gets_the_ca_and_what_has_no_such_place_is_named() {
    let mut world = mk(None);
    world.pools.clear();
    let theirs = json!({
        "ignition": {"version": "3.1.0", "security": {"tls": {"certificateAuthorities": [{"source": "old"}]}}},
        "storage": {"files": [{"path": "/theirs"}]},
    });
    world.secrets.push(mk_foreign(&theirs));
    assert_eq!(world.pass().0, ["worker-user-data"]);
    assert!(world.pass().0.is_empty());
    let now = world.config("worker-user-data");
    assert_eq!((&now["storage"], &now["ignition"]["version"]), (&theirs["storage"], &json!("3.1.0")));
    world.secrets = vec![mk_foreign(&json!({"ignition": {"version": "3.1.0"}}))];
    let (written, left) = world.pass();
    assert!(written.is_empty() && left[0].contains("worker-user-data"), "{left:?}");
    for other in [json!({"cloud-init": 1}), json!("#cloud-config")] {
        world.secrets = vec![mk_foreign(&other)];
        assert_eq!(world.pass(), (vec![], vec![]), "{other}");
    }
}

#[test]
fn a_pools_token_stays_until_it_is_revoked() {
    let mut world = mk(Some(vec![]));
    assert_eq!(world.pass().0.len(), 2);
    let first = pointer::token(&world.config("worker-user-data-managed")).unwrap().to_owned();
    assert!(world.pass().0.is_empty());
    world.ca = "CA 2";
    world.pass();
    assert_eq!(pointer::token(&world.config("worker-user-data-managed")), Some(first.as_str()));
    world.tokens.as_mut().unwrap().retain(|r| r.pool != "worker");
    assert_eq!(world.pass().0, ["worker-user-data-managed"]);
    assert_ne!(pointer::token(&world.config("worker-user-data-managed")), Some(first.as_str()));
    // Tokens are switched off: the header is removed.
    world.tokens = None;
    world.pass();
    assert_eq!(pointer::token(&world.config("worker-user-data-managed")), None);
}

#[test]
fn an_installers_pointer_gets_the_pools_token_or_it_is_said_why_not() {
    let ca = json!({"tls": {"certificateAuthorities": [{"source": "data:text/plain;charset=utf-8;base64,Q0EgMQ=="}]}});
    let source = "https://api-int.example.com:22623/config/worker";
    let theirs = |version: &str, merge: Value| json!({"ignition": {"version": version, "config": {"merge": [merge]}, "security": ca}});
    let mut world = mk(Some(vec![]));
    world.pass();
    let token = pointer::token(&world.config("worker-user-data-managed")).unwrap().to_owned();
    let header = json!([{"name": "Authorization", "value": format!("Bearer {token}")}]);
    let mut good = vec![json!({"source": source}), json!({"source": source, "httpHeaders": []})];
    // The header has a revoked token.
    let old = format!("Bearer {}", Token::new(&[9; ENTROPY]).reveal());
    good.push(json!({"source": source, "httpHeaders": [{"name": "authorization", "value": old}]}));
    for merge in good {
        world.secrets.retain(is_managed);
        world.secrets.push(mk_foreign(&theirs("3.1.0", merge.clone())));
        assert_eq!(world.pass(), (vec!["worker-user-data".to_owned()], vec![]), "{merge}");
        let now = world.config("worker-user-data");
        assert_eq!(now["ignition"]["config"]["merge"][0]["httpHeaders"][0]["value"], header[0]["value"]);
        assert_eq!(world.pass(), (vec![], vec![]));
    }
    let elsewhere = "https://api-int.example.com:22623/config/nosuch";
    let spec_2 =
        json!({"ignition": {"version": "2.2.0", "config": {"append": [{"source": source}]}, "security": ca}});
    for (config, why) in [
        (theirs("3.0.0", json!({"source": source})), "3.1.0"),
        (spec_2, "3.1.0"),
        (theirs("3.2.0", json!({"source": elsewhere})), "nosuch"),
        (
            theirs(
                "3.2.0",
                json!({"source": source, "httpHeaders": [{"name": "Authorization", "value": "Basic eA=="}]}),
            ),
            "of its own",
        ),
        (
            theirs(
                "3.2.0",
                json!({"source": source, "httpHeaders": [{"name": "Authorization", "value": "Bearer eyJ0.of.others"}]}),
            ),
            "of its own",
        ),
        (
            theirs("3.2.0", json!({"source": "https://other.example.com:22623/config/worker"})),
            "other.example.com:22623",
        ),
        (
            theirs("3.2.0", json!({"source": "https://api-int.example.com/config/worker"})),
            "api-int.example.com:443",
        ),
    ] {
        world.secrets.retain(is_managed);
        world.secrets.push(mk_foreign(&config));
        let (written, left) = world.pass();
        assert!(written.is_empty() && left.len() == 1, "{config}: {left:?}");
        assert!(left[0].contains("no boot token") && left[0].contains(why), "{left:?}");
        assert!(!left[0].contains(token.split_once('.').unwrap().1), "{left:?}");
    }
    // A valid token that an administrator has created for the pool stays.
    let limited = Token::new(&[8; ENTROPY]);
    let record = Record { single_use: true, ..Record::new(&limited, "worker") };
    world.tokens.as_mut().unwrap().push(record);
    let sent = json!([{"name": "Authorization", "value": format!("Bearer {}", limited.reveal())}]);
    world.secrets.retain(is_managed);
    world.secrets.push(mk_foreign(&theirs("3.2.0", json!({"source": source, "httpHeaders": sent}))));
    assert_eq!(world.pass(), (vec![], vec![]));
    // A config that points to no server, and an invalid config, get no token.
    for config in [theirs("3.2.0", json!({"source": "https://example.com/x.ign"})), json!({"cloud-init": 1})]
    {
        world.secrets.retain(is_managed);
        world.secrets.push(mk_foreign(&config));
        assert_eq!(world.pass(), (vec![], vec![]), "{config}");
    }
}

#[test]
fn the_same_is_told_once_and_another_cause_again() {
    let left =
        |why: &str| NotUpdated::secret(&mk_foreign(&json!({})), OperatorEvent::UserDataWithoutToken, why);
    let now = Timestamp::UNIX_EPOCH;
    let name = |why| left(why).event(now).metadata.name.unwrap();
    assert_eq!(name("a"), name("a"));
    assert_ne!(name("a"), name("b"));
    let event = left("a").event(now);
    assert_eq!(event.involved_object.name.as_deref(), Some("worker-user-data"));
    assert_eq!(event.involved_object.namespace, event.metadata.namespace);
}
