export default function (pi) {
  const message = (name, event, ctx) => ({
    event: name,
    session: ctx.sessionManager.getSessionId(),
    call: event.toolCallId,
    tool: event.toolName,
    cwd: ctx.cwd,
    input: event.input,
  })
  // What the session may do, for the model.
  pi.on("before_agent_start", async (event, ctx) => {
    const session = ctx.sessionManager.getSessionId()
    const start = { event: "start", session, cwd: ctx.cwd }
    const text = await ask(ctx.cwd, start).then((said) => said.note, (error) => error.message)
    if (text) return { systemPrompt: `${event.systemPrompt}\n\n${text}` }
  })
  // A handler that throws blocks the call, with its text.
  pi.on("tool_call", async (event, ctx) => {
    const said = await ask(ctx.cwd, message("before", event, ctx))
    const asked = said.decision === "ask" && ctx.hasUI
    const yes = said.decision === "allow" || (asked && (await ctx.ui.confirm("clash", said.reason)))
    if (!yes) return { block: true, reason: said.reason || "clash: blocked: the hook answered nonsense" }
    if (said.input) Object.assign(event.input, said.input)
  })
  pi.on("tool_result", async (event, ctx) => {
    const note = (text) => ({ content: [...event.content, { type: "text", text }] })
    try {
      const said = await ask(ctx.cwd, message(event.isError ? "failed" : "after", event, ctx))
      if (said.note) return note(said.note)
    } catch (error) {
      return note(error.message)
    }
  })
}
