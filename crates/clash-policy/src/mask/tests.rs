//! Masks of real forms, and the properties of every mask.

use proptest::prelude::*;

use super::*;

/// Masks a text in which each secret stands between `«` and `»`, and compares: the secrets
/// are gone, and all other bytes are there.
#[track_caller]
fn assert_mask(syntax: MaskSyntax, marked: &str) {
    let text: String = marked.replace(['«', '»'], "");
    let masked = mask(syntax, text.as_bytes()).expect("the text can be masked");
    let mut wanted = String::new();
    for (at, part) in marked.split(['«', '»']).enumerate() {
        if at % 2 == 0 {
            wanted.push_str(part);
            continue;
        }
        let fill = if part.bytes().all(|b| b.is_ascii_digit()) { '1' } else { 'x' };
        wanted.extend(part.chars().map(|c| if c.is_whitespace() { c } else { fill }));
    }
    assert_eq!(String::from_utf8_lossy(&masked), wanted, "{syntax:?}");
}

#[test]
fn tokens_of_npm_are_masked_and_registries_stay() {
    assert_mask(
        MaskSyntax::Ini,
        "registry=https://npm.corp/api/\n@corp:registry=https://npm.corp:8443/\n\
         //npm.corp/api/:_authToken=«npm_abcdef»\n//npm.corp:8443/:_password = «aHVudGVyMg==»\n\
         //a.b/:_auth=\"«dTpw»\"\n; //old/:_authToken=«previous one»\n//c/:_authToken=${NPM_TOKEN}\n\
         //d/:_authToken=«${A:-fallback}»\nalways-auth=true\n//c/:username=bob\n\
         strict-ssl=false\nca[]=\"-----BEGIN CERTIFICATE-----\\nabc\"\ncafile=/etc/x.pem\n\
         proxy=http://«bob»:«s/cr3t»@proxy:3128/\nkey=\"«-----BEGIN PRIVATE KEY-----\\nMII\\n-----END»\"\n",
    );
}

#[test]
fn passwords_in_addresses_of_pip_and_uv_are_masked() {
    assert_mask(
        MaskSyntax::Ini,
        "[global]\nindex-url = https://«user»:«pa:ss»@pypi.corp/simple\n\
         extra-index-url =\n    https://«tok3n»@b.corp/simple\n    https://c.corp/simple\n\
         proxy = «me»:«hunter2»@proxy.corp:3128\ntimeout = 60\ntrusted-host = pypi.corp\n",
    );
    assert_mask(
        MaskSyntax::Toml,
        "keyring-provider = \"subprocess\"\nindex-url = \"https://«u»:«p»@h/simple\"\n[[index]]\n\
         name = \"corp\"\nurl = 'https://${USER}:${PASS}@h/simple'\nauthenticate = \"always\"\n",
    );
}

#[test]
fn tokens_of_cargo_and_poetry_are_masked() {
    assert_mask(
        MaskSyntax::Toml,
        "[registries.corp]\nindex = \"sparse+https://cargo.corp/\"\ntoken = \"«Bearer abc»\" #« was xyz»\n\
         credential-provider = [\"cargo:token\", \"/bin/x\"]\n[env]\nCORP_TOKEN = { value = \"«abc»\", force = true }\n\
         [http]\nproxy = \"«bob»:«pw»@proxy:80\"\ntimeout = 30\n[registry]\n# token = '«old»'\n\
         [alias]\nb = \"build\"\n[x]\nsecrets = [\n  \"«a1»\",\n  \"«b2»\",\n]\nlong_token = \"\"\"\n«one»\n«two»\"\"\"\nend = \"y\"\n",
    );
    assert_mask(
        MaskSyntax::Toml,
        "[repositories.corp]\nurl = \"https://pypi.corp\"\n[http-basic.corp]\nusername = \"«bob»\"\npassword = \"«pw»\"\n[virtualenvs]\npath = \"x\"\n",
    );
}

#[test]
fn secrets_in_yaml_are_masked() {
    assert_mask(
        MaskSyntax::Yaml,
        "npmRegistryServer: \"https://npm.corp\"\nnpmAuthToken: \"«abc»\"\nnpmAlwaysAuth: true\n\
         npmRegistries:\n  \"https://b.corp\":\n    npmAuthIdent: «bob:pw»\n    npmAlwaysAuth: true\n\
         npmScopes: {corp: {npmAuthToken: \"«x»\", npmRegistryServer: \"https://b\"}}\n\
         nested_secret: |\n  «line one: a»\n  «line two»\nafter: plain\n# npmAuthToken: «old»\n",
    );
    assert_mask(
        MaskSyntax::Yaml,
        "---\n:sources:\n- https://«bob»:«pw»@gems.corp/\n- https://rubygems.org/\n:rubygems_api_key: «rubygems_abc»\ngem: --no-document\n",
    );
    assert_mask(
        MaskSyntax::BundlerYaml,
        "---\nBUNDLE_PATH: \"vendor/bundle\"\nBUNDLE_GEMS__CORP__COM: \"«bob:pw»\"\nBUNDLE_BUILD__NOKOGIRI: \"--use-system-libraries\"\nBUNDLE_MIRROR__HTTPS://RUBYGEMS__ORG/: \"https://gems.corp\"\n",
    );
}

#[test]
fn properties_and_words_are_masked() {
    assert_mask(
        MaskSyntax::Properties,
        "org.gradle.jvmargs=-Xmx2g -Djavax.net.ssl.trustStorePassword=«changeit» -Dfile.encoding=UTF-8\n\
         nexusUser=bob\nnexusPassword=«two words»\nsigning.keyId: «24875D73»\nrepo.token «abc\\\n   def»\n\
         systemProp.https.proxyHost=proxy\n! apiKey=«123456»\norg.gradle.caching=true\n"
            .replace("«abc\\\n   def»", "«abc»\\\n   «def»")
            .as_str(),
    );
    assert_mask(
        MaskSyntax::Properties,
        "registry \"https://npm.corp\"\n\"//npm.corp/:_authToken\" \"«abc»\"\nstrict-ssl false\n",
    );
}

#[test]
fn netrc_keeps_machines_alone() {
    assert_mask(
        MaskSyntax::Netrc,
        "machine a.corp login «bob» password «\"two words\"»\nmachine b.corp\n\tlogin «x»\n\tpassword «y»\n\
         default login «anonymous» password «me@x»\nmacdef« init»\n«cd /»\n«secret»\n\nmachine c\n",
    );
}

#[test]
fn servers_of_maven_and_sources_of_nuget_are_masked() {
    assert_mask(
        MaskSyntax::Xml,
        "<?xml version=\"1.0\"?>\n<settings xmlns=\"http://maven\">\n<mirrors><mirror><id>m</id><url>https://«u»:«p»@h/</url></mirror></mirrors>\n\
         <servers>\n<server><id>corp</id><username>«bob»</username><password>«pw&amp;1»</password></server>\n\
         <!-- <server><id>x</id><password>«old»</password></server> --></servers>\n\
         <profiles><profile><properties><sonar.token><![CDATA[«t0k»]]></sonar.token><a>b</a></properties></profile></profiles>\n</settings>\n",
    );
    assert_mask(
        MaskSyntax::Xml,
        "<configuration><packageSources><add key=\"corp\" value=\"https://nuget.corp/v3\" /></packageSources>\n\
         <packageSourceCredentials><corp><add key=\"Username\" value=\"«bob»\" /><add key=\"ClearTextPassword\" value='«p>w»' /></corp></packageSourceCredentials>\n\
         <apikeys><add key=\"https://nuget.corp\" value=\"«AQAA»\"/></apikeys>\n\
         <config><add key=\"http_proxy.password\" value=\"«enc»\" /><add key=\"globalPackagesFolder\" value=\"x\" /></config></configuration>",
    );
}

#[test]
fn tokens_of_composer_are_masked() {
    assert_mask(
        MaskSyntax::Json,
        r#"{"config": {"github-oauth": {"github.com": "«abc»"}, "sort-packages": true,
            "http-basic": {"h": {"username": "«u»", "password": "«p\"w»"}}},
            "repositories": [{"type": "composer", "url": "https://«u»:«p»@h/"}], "n": 5}"#,
    );
    assert_mask(MaskSyntax::SecretJson, r#"{"h": {"any": "«thing»", "n": «42»}, "e": ""}"#);
}

#[test]
fn a_text_that_cannot_be_read_has_no_copy() {
    for (syntax, text) in [
        (MaskSyntax::Json, "{\"password\": \"x\""),
        (MaskSyntax::Json, "{} token"),
        (MaskSyntax::Json, "// token\n{}"),
        (MaskSyntax::Xml, "<a><password>x</a>"),
        (MaskSyntax::Xml, "<a"),
        (MaskSyntax::Xml, "<!DOCTYPE a [<!ENTITY pw \"x\">]><a/>"),
    ] {
        assert_eq!(mask(syntax, text.as_bytes()), Err(MaskError::Malformed), "{text}");
    }
    assert_eq!(mask(MaskSyntax::Ini, b"a\0b"), Err(MaskError::Binary));
    let large = vec![b'a'; MAX_MASKED_BYTES + 1];
    assert_eq!(mask(MaskSyntax::Ini, &large), Err(MaskError::TooLarge));
}

#[test]
fn syntax_goes_by_the_name_of_the_file() {
    assert_eq!(MaskSyntax::of_path("$HOME/.npmrc"), Some(MaskSyntax::Ini));
    assert_eq!(MaskSyntax::of_path("$XDG_CONFIG_HOME/pip/pip.conf"), Some(MaskSyntax::Ini));
    assert_eq!(MaskSyntax::of_path("$CARGO_HOME/config.toml"), Some(MaskSyntax::Toml));
    assert_eq!(MaskSyntax::of_path("$HOME/.ssh/id_rsa"), None);
    assert_eq!(MaskSyntax::of_path("$HOME/x.npmrc"), None);
    assert_eq!(MaskSyntax::of_path("$HOME/config.toml"), None);
}

const SYNTAXES: [MaskSyntax; 9] = [
    MaskSyntax::Ini,
    MaskSyntax::Properties,
    MaskSyntax::Yaml,
    MaskSyntax::BundlerYaml,
    MaskSyntax::Toml,
    MaskSyntax::Netrc,
    MaskSyntax::Xml,
    MaskSyntax::Json,
    MaskSyntax::SecretJson,
];

/// Texts of the pieces that settings files have.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "token",
        "=",
        ": ",
        ":",
        " ",
        "\n",
        "\n  ",
        "\"",
        "'",
        "\"\"\"",
        "[",
        "]",
        "{",
        "}",
        "<",
        ">",
        "/",
        "</a>",
        "<a>",
        "<password>",
        "</password>",
        "<!--",
        "-->",
        "<![CDATA[",
        "]]>",
        "\\",
        "#",
        ";",
        "|",
        "https://",
        "@",
        "user",
        ",",
        "- ",
        "password",
        "machine",
        "login",
        "macdef",
        "${A}",
        "bearer ",
        "-----BEGIN PRIVATE KEY-----",
        "-----END",
        "é",
        "x=1",
        "true",
        "value",
    ]);
    prop::collection::vec(piece, 0..40).prop_map(|parts| parts.concat())
}

/// A secret that no other part of a test text has.
fn secret() -> impl Strategy<Value = String> {
    "[QZ][qz!$%^*+~.][A-Za-z0-9_+.~!^-]{3,20}[QZ]"
}

proptest! {
    #[test]
    fn a_mask_keeps_length_and_lines(text in pieces()) {
        for syntax in SYNTAXES {
            let Ok(masked) = mask(syntax, text.as_bytes()) else { continue };
            prop_assert_eq!(masked.len(), text.len());
            for (old, new) in text.bytes().zip(&masked) {
                prop_assert!(old == *new || matches!(new, b'x' | b'1'));
                prop_assert!(!old.is_ascii_whitespace() || old == *new);
            }
        }
    }

    #[test]
    fn no_secret_survives_in_its_place(secret in secret(), noise in "[a-z]{1,9}", at in 0usize..24) {
        let q = &secret;
        let forms: [(MaskSyntax, String); 24] = [
            (MaskSyntax::Ini, format!("{noise}=1\n//h/{noise}/:_authToken={q}\nb={noise}\n")),
            (MaskSyntax::Ini, format!("[{noise}]\nindex-url = https://u:{q}@h/{noise}\n")),
            (MaskSyntax::Ini, format!("_password=\"{q}\"\n")),
            (MaskSyntax::Ini, format!("  _auth = {q}")),
            (MaskSyntax::Ini, format!("proxy={noise}:{q}@h:80\n")),
            (MaskSyntax::Ini, format!("password =\n    {q}\n    {q}\n")),
            (MaskSyntax::Properties, format!("{noise}.password: {q}\n")),
            (MaskSyntax::Properties, format!("{noise}Token {q}\n")),
            (MaskSyntax::Properties, format!("args=-D{noise}.secret={q} -Dx=y\n")),
            (MaskSyntax::Properties, format!("apiKey={noise}\\\n  {q}\n")),
            (MaskSyntax::Yaml, format!("{noise}:\n  npmAuthToken: {q}\n")),
            (MaskSyntax::Yaml, format!("npmAuthToken: >-\n  {noise}: {q}\n  {q}\n")),
            (MaskSyntax::Yaml, format!("tokens:\n  - {q}\n  - a: {q}\n")),
            (MaskSyntax::Yaml, format!("a: {{{noise}Token: '{q}', b: c}}\n")),
            (MaskSyntax::BundlerYaml, format!("BUNDLE_{}__COM: \"{q}\"\n", noise.to_uppercase())),
            (MaskSyntax::Toml, format!("[registries.{noise}]\ntoken = \"{q}\"\n")),
            (MaskSyntax::Toml, format!("token = '''\n{q}\n{noise}'''\n")),
            (MaskSyntax::Toml, format!("env.MY_TOKEN = {{ value = \"{q}\" }}\n")),
            (MaskSyntax::Toml, format!("url = \"https://{q}@h/{noise}\"\n")),
            (MaskSyntax::Netrc, format!("machine {noise} login {q} password {q}\n")),
            (MaskSyntax::Xml, format!("<a><password>{q}</password><b>{noise}</b></a>")),
            (MaskSyntax::Xml, format!("<a><!-- <server><password>{q}</password> --></a>")),
            (MaskSyntax::Json, format!("{{\"{noise}\": {{\"bearer\": {{\"h\": \"{q}\"}}}}}}")),
            (MaskSyntax::SecretJson, format!("{{\"{noise}\": [\"{q}\"]}}")),
        ];
        let (syntax, text) = forms.get(at).expect("one of them");
        let masked = mask(*syntax, text.as_bytes()).expect("well formed");
        let masked = String::from_utf8_lossy(&masked).into_owned();
        prop_assert!(!masked.contains(q.as_str()), "{syntax:?}\n{text}\n{masked}");
        prop_assert!(syntax == &MaskSyntax::SecretJson || masked.contains(&noise) || !text.contains(&format!("{noise}=")), "{masked}");
    }
}

#[test]
fn secrets_behind_inner_quotes_addresses_and_flat_lists_are_masked() {
    assert_mask(
        MaskSyntax::Properties,
        "org.gradle.jvmargs=-Xmx1g -Dx.token=\"«abc def»\" -Dy.password='«p,q»' -Dz=1\n",
    );
    assert_mask(
        MaskSyntax::BundlerYaml,
        "---\nBUNDLE_HTTPS://GEMS__CORP__COM/: \"«user:pass»\"\n\
         BUNDLE_MIRROR__HTTPS://GEMS__ORG/: \"https://m.test/\"\nBUNDLE_PATH: \"vendor\"\n",
    );
    assert_mask(MaskSyntax::Yaml, ":tokens:\n- «abc»\n- «def»\n:sources:\n- https://h.test/\n");
}
