"""Other people's session interfaces on our log: one module for each agent framework, translators only.

A framework's entry is kept word for word in a `payload.kept` event, with a reading of what it says. So the transcript,
search, notes and exports show it without knowing the framework, and another framework can continue the session. What
the framework deletes is retracted by another event. `conversation` has what the modules share.

Import the module of your framework, for instance `onrecord.frameworks.openai_agents`; each one needs its extra.
"""
