-- Every statement that is run on opencode's own database, by name. All but the last three only read, on a connection that
-- cannot write. The columns are those of the version the statements were proven on; others are refused before anything is written.

-- session: a conversation
SELECT * FROM session WHERE id = ?1

-- sessions: where every conversation began
SELECT id, directory FROM session ORDER BY id

-- project: the project a conversation belongs to
SELECT p.* FROM project AS p JOIN session AS s ON s.project_id = p.id WHERE s.id = ?1

-- messages: the messages that changed at a time or later
SELECT * FROM message WHERE session_id = ?1 AND time_updated >= ?2 ORDER BY time_updated, id

-- parts: the parts that changed at a time or later, each with who said it
SELECT p.*, m.data ->> '$.role' AS role FROM part AS p LEFT JOIN message AS m ON m.id = p.message_id
WHERE p.session_id = ?1 AND p.time_updated >= ?2 ORDER BY p.time_updated, p.id

-- columns: the columns of a table
SELECT name FROM pragma_table_info(?1)

-- move_session: a conversation is resumed in another directory from now on
UPDATE session SET directory = ?1 WHERE id = ?2

-- put_project: take a project over if there is none of its id
INSERT OR IGNORE INTO project (id, worktree, vcs, name, icon_url, icon_url_override, icon_color, time_created, time_updated,
    time_initialized, sandboxes, commands)
VALUES (:id, :worktree, :vcs, :name, :icon_url, :icon_url_override, :icon_color, :time_created, :time_updated,
    :time_initialized, :sandboxes, :commands)

-- put_session: take a conversation over
INSERT OR REPLACE INTO session (id, project_id, workspace_id, parent_id, slug, directory, path, title, version, share_url,
    summary_additions, summary_deletions, summary_files, summary_diffs, metadata, cost, tokens_input, tokens_output,
    tokens_reasoning, tokens_cache_read, tokens_cache_write, revert, permission, agent, model, time_created, time_updated,
    time_compacting, time_archived)
VALUES (:id, :project_id, NULL, NULL, :slug, :directory, :path, :title, :version, NULL, :summary_additions,
    :summary_deletions, :summary_files, :summary_diffs, :metadata, :cost, :tokens_input, :tokens_output, :tokens_reasoning,
    :tokens_cache_read, :tokens_cache_write, :revert, :permission, :agent, :model, :time_created, :time_updated,
    :time_compacting, :time_archived)

-- put_message: take a message over, the latest form of it
INSERT OR REPLACE INTO message (id, session_id, time_created, time_updated, data)
VALUES (:id, :session_id, :time_created, :time_updated, :data)

-- put_part: take a part over, the latest form of it
INSERT OR REPLACE INTO part (id, message_id, session_id, time_created, time_updated, data)
VALUES (:id, :message_id, :session_id, :time_created, :time_updated, :data)
