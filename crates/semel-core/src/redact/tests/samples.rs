//! Secrets and ordinary texts, as they are met. No secret here was ever one.

/// Keys that can be told by how they are written. They are put together here, so that nobody who looks
/// for lost keys finds these.
pub(super) fn keys() -> Vec<String> {
    let body = "4eC39HqLyjWDarjtT1zdp7dcQ9xK2mVb8sR5";
    let capitals = "QX7RT2VBNM4KLP9Z";
    let mut keys: Vec<String> = [
        "sk-proj-",
        "sk-",
        "sk_live_",
        "sk_test_",
        "rk_live_",
        "whsec_",
        "ghp_",
        "gho_",
        "ghs_",
        "github_pat_11",
        "glpat-",
        "xoxb-2",
        "xoxp-3",
        "AIza",
        "ya29.",
        "npm_",
        "hf_",
    ]
    .iter()
    .map(|begins| format!("{begins}{body}"))
    .collect();
    keys.push(format!("AKIA{capitals}"));
    keys.push(format!("ASIA{capitals}"));
    keys.push(format!("semel_fpk6df2b5md4_{}_9k2m4pq", body.repeat(2)));
    keys.push(format!("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiI3In0.{body}"));
    keys.push(format!(
        "-----BEGIN RSA PRIVATE KEY-----\n{body}\n-----END RSA PRIVATE KEY-----"
    ));
    keys.push(format!(
        "-----BEGIN PRIVATE KEY----- {body} -----END PRIVATE KEY-----"
    ));
    keys
}

/// How values are announced as secrets; `{}` stands for one.
pub(super) const ANNOUNCED: [&str; 44] = [
    "password={}",
    "PASSWORD={}",
    "db_password = {}",
    "password == {}",
    "password: {}",
    "password := {}",
    ":password => '{}'",
    "PGPASSWORD={} psql -h db",
    "MYSQL_PWD={} mysql",
    "Server=db;Uid=me;Pwd={};Database=x",
    "AccountName=a;AccountKey={};EndpointSuffix=b",
    "token={}, user=bob",
    "(token={})",
    "access_token={}&expires=3600",
    "https://api.test/v1?api_key={}&page=2",
    "https://api.test/v1?a=b&client_secret={}",
    "user[password]={}&user[name]=bob",
    "https://me:{}@example.test/path",
    "postgres://me:{}@db:5432/orders?sslmode=require",
    "redis://:{}@cache/0",
    "--password {}",
    "--password={}",
    "deploy --api-key {} --verbose",
    "deploy --api-key='{}' --verbose",
    "[\"--password\", \"{}\"]",
    "--passphrase '{}'",
    "{\"password\":\"{}\"}",
    "{\"password\" : \"{}\", \"id\": 7}",
    "{'secret': '{}'}",
    "{\\\"apiKey\\\":\\\"{}\\\"}",
    "{\"clientSecret\":\"a\\\"{}\"}",
    "{\"Authorization\": \"Bearer {}\"}",
    "Authorization: Bearer {}",
    "authorization: token {}\r\nAccept: */*",
    "curl -H 'Authorization: Basic {}' https://api.test",
    "curl -H \"X-Api-Key: {}\" https://api.test",
    "Proxy-Authorization: Digest username=\"me\", response=\"{}\"",
    "Cookie: theme=dark; session={}",
    "Set-Cookie: sid={}; HttpOnly",
    "sent with Bearer {} and refused",
    "sent with basic {}",
    "x-auth-token: {}",
    "aws_secret_access_key = {}",
    "authorization=Bearer {}",
];

/// What nobody wants to see changed.
pub(super) const ORDINARY: [&str; 62] = [
    "",
    "create-order --amount 100 --currency EUR",
    "git push origin main",
    "kubectl get secret -n shop",
    "kubectl create secret generic mail --from-file=a",
    "docker run -u 1000:1000 -p 8080:80 nginx:1.27",
    "rsync -a ./src/ me@host:/srv/www/",
    "ssh://git@github.com/org/repo.git",
    "git@github.com:org/repo.git",
    "curl -sSf https://example.test:8443/health?verbose=1",
    "psql postgres://me@db:5432/orders",
    "http://[::1]:7363/v1/operations",
    "http://127.0.0.1:7363/a@b",
    "mailto:bob@example.test",
    "PWD=/home/bob OLDPWD=/tmp PATH=/usr/bin",
    "OPENAI_BASE_URL=http://localhost:8000/v1",
    "max_tokens=100 temperature=0.7",
    "{\"max_tokens\": 4096, \"total_tokens\": 17, \"model\": \"m-1\"}",
    "{\"prompt_tokens\":12,\"completion_tokens\":5}",
    "{\"id\": 42, \"amount\": 100.50, \"paid\": true, \"note\": null}",
    "{\"key\":\"order-7\",\"fence\":1,\"name\":\"create-order\"}",
    "{\"password\": null, \"token\": false}",
    "{\"secrets\": [], \"token\": {\"kind\": \"a\"}}",
    "key=order-7 idempotency-key: order-7",
    "Idempotency-Key: 550e8400-e29b-41d4-a716-446655440000",
    "550e8400-e29b-41d4-a716-446655440000",
    "sk-550e8400",
    "task-1234567890123456789012345678",
    "risk-analysis-of-the-year-2026-and-later",
    "sk-learn-based-model-for-forecasts",
    "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "order ORD-2026-000417, invoice INV/2026/88",
    "order AKIABARA is in Akita",
    "create-order:0123456789abcdef0123456789abcdef",
    "semel_begins_total 17",
    "semel_store_commit_duration_seconds_bucket",
    "the password was wrong",
    "the token has expired",
    "a bearer token is missing",
    "basic authentication failed",
    "the bearer of this letter",
    "Basic plan, 12 seats",
    "invalid token: expected a comma",
    "Unexpected token } in JSON at position 17",
    "SyntaxError: Unexpected token: '",
    "semel::Token::new failed",
    "token:: and secret::",
    "say --token or SEMEL_TOKEN",
    "use --token to name it",
    "password=",
    "password: ",
    "--password",
    "eyJ is how one begins",
    "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----",
    "10:15:30 connection refused (os error 111)",
    "exit 137: killed by signal 9",
    "grüße aus Köln: alles gut, 100 % fertig",
    "注文 7 は完了しました",
    "a = b == c => d := e :: f",
    "[redacted]",
];
