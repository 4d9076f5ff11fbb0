export const Clash = async ({ directory }) => {
  const message = (event, input, args) => ({
    event,
    session: input.sessionID,
    call: input.callID,
    tool: input.tool,
    cwd: resolve(directory, typeof args?.workdir === "string" ? args.workdir : "."),
    input: args ?? {},
  })
  return {
    // The settings of a project come after the user's and may name another.
    config: async (config) => {
      config.shell = SHELL
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
