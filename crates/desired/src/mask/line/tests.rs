//! Tests of `line`: lines that are masked, and lines that are not.

use super::*;

/// Every line holds a secret, each by another rule.
#[test]
fn lines_that_look_like_secrets_are_masked() {
    for text in [
        "SMTP_PASS=hunter2",
        "smtp-pass: hunter2",
        "pass hunter2",
        "DB_PASSWORD: hunter2",
        "dbPassword=hunter2",
        "PGPASSWORD=x",
        "requirepass foobared",
        "masterauth foobared",
        "rootpw hunter2",
        "MYSQL_PWD=hunter2",
        "pwd: x",
        "PIN=1234",
        "pin 0000",
        "sim.pin: \"1234\"",
        "cookie=abc",
        "Set-Cookie: SID=abc",
        "session_cookie: abc",
        "token: abc",
        "max_token hunter2",
        "key = abcdef",
        "api_key: 12",
        "apikey=12",
        "client_secret = 's'",
        "credentials: me",
        "AWS_CREDS=x",
        "auth = dXNlcg",
        "  \"auth\": \"dXNlcg==\",",
        "{\"user\":\"me\",\"pass\":\"hunter2\"}",
        "Authorization: Bearer abc",
        "Authorization: Basic abc",
        "wpa_psk=12345678",
        "<password>hunter2</password>",
        "machine h login me password hunter2",
        "# password: hunter2",
        "password is hunter2",
        "the password hunter2",
        "ExecStart=/usr/bin/app --password hunter2",
        "ExecStart=/usr/bin/app --token=abc",
        "Environment=\"SMTP_PASS=hunter2\"",
        "Environment=A=b PIN=1234",
        "rd.luks.key=abc",
        "password: yes-this-is-it",
        "PasswordAuthentication=hunter2",
        "Secret hunter2",
        "Secret correct-horse",
        "Secret: openshift-config/pull-secret",
        "Secret openshift-config/pull-secret password hunter2",
        "Secret a/b",
        "Secret my-app/0123456789abcdef0123456789abcdef",
        "my Secret pull-secret=hunter2",
        "tokens: [abc]",
        "tokens: [\n  abc]",
        "password: |\n  hunter2\n",
        "password: >-\n  hunter2\n",
        "password:\n  hunter2\n",
        "passwords:\n- hunter2\n",
        "passwords:\n\n  - hunter2\n",
        "<password>\nhunter2\n</password>",
        "[auth]\nvalue=hunter2",
        "[plugins.\"x\".auth]\nusername = \"me\"",
        "--password \\\n  hunter2",
        "proxy=http://me:pw@proxy:3128/",
        "proxy=http://me:p/w@proxy:3128/",
        "proxy=me:pw@proxy:3128",
        "http://me@proxy/",
        "curl -u me:hunter2 https://host/",
        "ExecStart=curl --user me:hunter2 https://host/",
        "-----BEGIN PRIVATE KEY-----",
        "-----BEGIN OPENSSH PRIVATE KEY-----\nabc",
        "core:$6$salt$hash",
        "me:$apr1$x$y",
        "x: $2b$10$abc",
        "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSj",
        "x 0123456789abcdef0123456789abcdef",
        "x deadbeef12345678",
        "x AKIAIOSFODNN7EXAMPLE123",
        "x ghp_16C7e42F292c6912E7710c838347Ae178B4a",
        "data: aHVudGVyMg==",
        "https://h/x?sig=abc",
        "p\0a\0s\0s\0=\0x\0",
    ] {
        assert!(looks_secret(text), "{text:?}");
        assert!(looks_secret(&format!("harmless\n{text}\nharmless\n")), "{text:?}");
    }
}

#[test]
fn ordinary_configuration_is_not_masked() {
    for text in [
        "hello",
        "server time.example.com iburst",
        "keyboard = us",
        "passthrough",
        "bypass on",
        "PasswordAuthentication no",
        "PasswordAuthentication yes",
        "UsePAM yes",
        "max_token_count 40",
        "token_ttl: 30s",
        "HostKey /etc/ssh/ssh_host_rsa_key",
        "clientTokenFile: run/x.conf",
        "password =",
        "password:\nuser: me",
        "proxy=http://proxy:3128/",
        "image: quay.io/a/b@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        "ExecStart=/usr/lib/systemd/system-generators/a",
        "ExecStart=/usr/bin/fetch-token /run/x",
        "[Unit]\nDescription=A service\n[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n",
        "root=UUID=11111111-2222-3333-4444-555555555555",
        "Secret openshift-config/pull-secret is not there",
        "Secret machine-config-server-tls cannot be read: it has no key",
        "apply Secret node-bootstrapper-token: the server refuses it",
        "get Secret openshift-machine-api/worker-user-data: not found",
        "vm.swappiness = 10",
        "unqualified-search-registries = [\"docker.io\"]",
        "[[registry]]\nlocation = \"quay.io\"",
        "After=user@1000.service",
        "# comment",
        "",
    ] {
        assert!(!looks_secret(text), "{text:?}");
    }
}

#[test]
fn kernel_arguments_keep_their_names_when_values_are_masked() {
    for (given, shown) in [
        ("quiet", "quiet"),
        ("console=ttyS0,115200", "console=ttyS0,115200"),
        ("nbd.password=hunter2", "nbd.password=***"),
        ("root=nfs://me:pw@host/x", "root=***"),
        ("0123456789abcdef0123456789abcdef", "***"),
    ] {
        assert_eq!(argument(given), shown);
    }
}
