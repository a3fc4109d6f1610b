//! User data for machines that others provision: which Secrets hold which pointer config. Pure.
//!
//! Ours (`POOL-user-data-managed`, labelled) are written whole; those of an installer are given the CA and keep
//! everything else. With `--require-token` each pool has a boot token of its own in its pointer; it is kept for as long
//! as it is good, and another is made when it is revoked or has expired.

use api::boot_token::{ENTROPY, Record, Token};
use api::k8s::{ByteString, Secret};
use api::user_data::{self, MANAGED, PORT, USER_DATA};
use api::v1::MachineConfigPool;
use ignition::Version;
use ignition::pointer::{self, Pointer};
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

/// What user data is made of.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// The server's host, as it stands in a URL.
    pub host: &'a str,
    /// Whom machines trust (PEM).
    pub ca: &'a [u8],
    /// All pools.
    pub pools: &'a [MachineConfigPool],
    /// The Secrets that are there.
    pub secrets: &'a [Secret],
    /// The records of all boot tokens; none: machines show none.
    pub tokens: Option<&'a [Record]>,
    /// Now.
    pub now: Timestamp,
}

/// One Secret to be written.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    /// It, with the version that it was made from where it is there already.
    pub secret: Secret,
    /// The boot token in it, where that is new: to be written before it.
    pub token: Option<Record>,
    /// Why.
    pub why: &'static str,
}

/// What is to be written.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Plan {
    /// Secrets.
    pub writes: Vec<Write>,
    /// What is not as it should be and is left alone: object and reason.
    pub left: Vec<String>,
}

/// Works out all user data. `entropy` gives random bytes for new tokens.
pub fn plan(facts: &Facts<'_>, mut entropy: impl FnMut() -> [u8; ENTROPY]) -> Plan {
    let mut plan = Plan::default();
    for pool in facts.pools {
        let name = pool.metadata.name.as_deref().unwrap_or_default();
        let secret_name = user_data::secret_name(name);
        let there = facts.secrets.iter().find(|s| s.metadata.name.as_deref() == Some(&secret_name));
        let (token, record) = token(facts, name, there, &mut entropy);
        let pointer =
            Pointer { host: facts.host, port: PORT, pool: name, ca: facts.ca, token: token.as_deref() };
        let config = match pointer.config(Version::V3_5) {
            Ok(config) => config,
            Err(error) => {
                plan.left.push(format!("pool {name}: no pointer config: {error}"));
                continue;
            }
        };
        let mut secret = user_data::secret(pool, &config);
        let why = match there {
            None => "there is none",
            Some(there) if there.data == secret.data && is_managed(there) => continue,
            Some(there) => {
                secret.metadata.resource_version.clone_from(&there.metadata.resource_version);
                "it is not as the cluster says"
            }
        };
        plan.writes.push(Write { secret, token: record, why });
    }
    for secret in facts.secrets.iter().filter(|s| !is_managed(s)) {
        let name = secret.metadata.name.as_deref().unwrap_or_default();
        match foreign(secret, facts.ca) {
            Ok(None) => {}
            Ok(Some(secret)) => plan.writes.push(Write { secret, token: None, why: "the CA changed" }),
            Err(why) => plan.left.push(format!("Secret {}/{name}: {why}", user_data::NAMESPACE)),
        }
    }
    plan
}

fn is_managed(secret: &Secret) -> bool {
    secret.metadata.labels.as_ref().is_some_and(|l| l.contains_key(MANAGED))
}

fn config_of(secret: &Secret) -> Option<Value> {
    serde_json::from_slice(&secret.data.as_ref()?.get(USER_DATA)?.0).ok()
}

/// The boot token in a pool's user data.
pub fn token_of(secret: &Secret) -> Option<Token> {
    Token::parse(pointer::token(&config_of(secret)?)?)
}

/// The token for a pool, and its record where it is new.
fn token(
    facts: &Facts<'_>,
    pool: &str,
    there: Option<&Secret>,
    entropy: &mut impl FnMut() -> [u8; ENTROPY],
) -> (Option<String>, Option<Record>) {
    let Some(records) = facts.tokens else { return (None, None) };
    let good = |token: &Token| {
        records.iter().any(|r| r.is(token) && r.pool == pool && !r.single_use && !r.is_spent(facts.now))
    };
    if let Some(token) = there.and_then(token_of).filter(good) {
        return (Some(token.reveal()), None);
    }
    let token = Token::new(&entropy());
    let record = Record::new(&token, pool);
    (Some(token.reveal()), Some(record))
}

/// A Secret of somebody else with our CA in it; none: it is there, or the Secret is about something else.
fn foreign(secret: &Secret, ca: &[u8]) -> Result<Option<Secret>, &'static str> {
    let Some(bytes) = secret.data.as_ref().and_then(|d| d.get(USER_DATA)) else { return Ok(None) };
    let Ok(mut config) = serde_json::from_slice::<Value>(&bytes.0) else { return Ok(None) };
    if config.get("ignition").is_none() {
        return Ok(None);
    }
    if !pointer::set_ca(&mut config, ca)? {
        return Ok(None);
    }
    let mut changed = secret.clone();
    changed.metadata.managed_fields = None;
    let data = changed.data.get_or_insert_default();
    data.insert(USER_DATA.to_owned(), ByteString(config.to_string().into_bytes()));
    Ok(Some(changed))
}

#[cfg(test)]
mod tests {
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
        /// One pass: what it wrote, by name, and what it left.
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
            (written, plan.left)
        }

        fn config(&self, name: &str) -> Value {
            config_of(self.secrets.iter().find(|s| s.metadata.name.as_deref() == Some(name)).unwrap())
                .unwrap()
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
        // Switched off: the header goes.
        world.tokens = None;
        world.pass();
        assert_eq!(pointer::token(&world.config("worker-user-data-managed")), None);
    }
}
