// clash decides every tool call of this agent. Written by
// `clash install --agent @AGENT@`; `clash uninstall --agent @AGENT@` removes it.
import { spawn } from "node:child_process"
import { resolve } from "node:path"

const CLASH = "@CLASH@"
const SHELL = "@SHELL@"
const LIMIT = 20000

// What clash says; whatever is no answer is a refusal.
const ask = (project, message) =>
  new Promise((answer, refuse) => {
    const fail = (why) => refuse(new Error(`clash: blocked: the hook ${why}`))
    const env = { ...process.env, CLASH_PROJECT: project }
    const child = spawn(CLASH, ["hook", "@AGENT@"], { cwd: "/", env, stdio: ["pipe", "pipe", "pipe"] })
    const timer = setTimeout(() => {
      child.kill("SIGKILL")
      fail("did not answer")
    }, LIMIT)
    let out = ""
    let err = ""
    child.stdout.on("data", (part) => (out += part))
    child.stderr.on("data", (part) => (err += part))
    child.stdin.on("error", () => {})
    child.on("error", (error) => {
      clearTimeout(timer)
      fail(`cannot be run: ${error.message}`)
    })
    child.on("close", (code) => {
      clearTimeout(timer)
      if (code !== 0) return err.trim() ? refuse(new Error(err.trim())) : fail(`ended with ${code}`)
      try {
        answer(out.trim() === "" ? {} : JSON.parse(out))
      } catch {
        fail("answered nonsense")
      }
    })
    child.stdin.end(JSON.stringify(message))
  })
