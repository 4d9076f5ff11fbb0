export const Clash = async ({ directory }) => {
  const message = (event, input, args) => ({
    event,
    session: input.sessionID,
    call: input.callID,
    tool: input.tool,
    cwd: resolve(directory, typeof args?.workdir === "string" ? args.workdir : "."),
    input: args ?? {},
  })
  // What a session may do, asked once for each.
  const told = new Map()
  const tell = (session) => {
    if (!told.has(session)) {
      const start = ask(directory, { event: "start", session, cwd: directory })
      told.set(session, start.then((said) => said.note ?? "", (error) => error.message))
    }
    return told.get(session)
  }
  return {
    // The settings of a project come after the user's and may name another.
    config: async (config) => {
      config.shell = SHELL
    },
    "experimental.chat.system.transform": async (input, output) => {
      const text = input.sessionID ? await tell(input.sessionID) : ""
      if (text) output.system.push(text)
    },
    "shell.env": async (input, output) => {
      if (input.sessionID) output.env.CLASH_SESSION = input.sessionID
    },
    "tool.execute.before": async (input, output) => {
      const said = await ask(directory, message("before", input, output.args))
      if (said.decision !== "allow") {
        throw new Error(said.reason || "clash: blocked: the hook answered nonsense")
      }
      // In place: another object would be ignored.
      if (said.input) Object.assign(output.args, said.input)
    },
    "tool.execute.after": async (input, output) => {
      try {
        const said = await ask(directory, message("after", input, input.args))
        if (said.note) output.output += `\n${said.note}`
      } catch (error) {
        output.output += `\n${error.message}`
      }
    },
  }
}
