-- Every statement that is run on the frameworks' own SQLite files, by name. All of them only read, on a connection that cannot write.

-- tables: the tables of a file
SELECT name FROM sqlite_schema WHERE type = 'table'

-- langgraph_count: how many checkpoints there are
SELECT count(*) FROM checkpoints

-- langgraph_threads: the threads
SELECT DISTINCT thread_id FROM checkpoints ORDER BY thread_id

-- langgraph_checkpoints: the checkpoints of one thread, in the order in which they were saved
SELECT rowid, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata
FROM checkpoints WHERE thread_id = ?1 ORDER BY rowid

-- langgraph_ids: the checkpoints of one thread, and which ones they continue
SELECT checkpoint_ns, checkpoint_id, parent_checkpoint_id FROM checkpoints WHERE thread_id = ?1

-- langgraph_writes: what the tasks of a checkpoint wrote
SELECT * FROM writes WHERE thread_id = ?1 AND checkpoint_ns = ?2 AND checkpoint_id = ?3 ORDER BY task_id, idx

-- adk_count: how many events there are
SELECT count(*) FROM events

-- adk_sessions: the sessions of all apps and users
SELECT app_name, user_id, id, state FROM sessions ORDER BY app_name, user_id, create_time, id

-- adk_events: the events of a session, in the order in which they were saved
SELECT event_data FROM events WHERE app_name = ?1 AND user_id = ?2 AND session_id = ?3 ORDER BY rowid

-- adk_ids: the ids of the events of a session
SELECT id FROM events WHERE app_name = ?1 AND user_id = ?2 AND session_id = ?3

-- adk_app_states: state that the sessions of an app share
SELECT app_name, state FROM app_states ORDER BY app_name

-- adk_user_states: state that the sessions of a user share
SELECT app_name, user_id, state FROM user_states ORDER BY app_name, user_id

-- openai_count: how many items there are
SELECT count(*) FROM agent_messages

-- openai_sessions: the conversations
SELECT session_id FROM agent_sessions ORDER BY created_at, session_id

-- openai_items: the items of a conversation, in the order in which they were saved
SELECT id, message_data FROM agent_messages WHERE session_id = ?1 ORDER BY id
