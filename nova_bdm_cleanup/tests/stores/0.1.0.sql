PRAGMA application_id = 1650748771;
PRAGMA user_version = 1;
BEGIN TRANSACTION;
CREATE TABLE charge (
            entry INTEGER, account TEXT, time REAL NOT NULL,
            amount INTEGER NOT NULL, PRIMARY KEY (entry, account))
        WITHOUT ROWID;
INSERT INTO "charge" VALUES(1795740685771,'mappings of project project-0ebe72e398d2',1.79574068577130651477e+09,1);
INSERT INTO "charge" VALUES(1795740745771,'mappings of project project-0ebe72e398d2',1.79574074577130651472e+09,0);
INSERT INTO "charge" VALUES(1795740805771,'mappings of project project-0ebe72e398d2',1.79574080577130651466e+09,0);
INSERT INTO "charge" VALUES(1795740865771,'mappings of project project-0ebe72e398d2',1.79574086577130651474e+09,1);
INSERT INTO "charge" VALUES(1795740745771,'stale attachments of project p',1.79574074577130651472e+09,0);
INSERT INTO "charge" VALUES(1795740805771,'stale attachments of project p',1.79574080577130651466e+09,0);
INSERT INTO "charge" VALUES(1795740865771,'stale attachments of project p',1.79574086577130651474e+09,2);
CREATE TABLE entry (
            serial INTEGER PRIMARY KEY AUTOINCREMENT, time REAL NOT NULL,
            server TEXT NOT NULL, outcome TEXT);
INSERT INTO "entry" VALUES(1795740685771,1.79574068577130651477e+09,'3ec95eb2-c8ce-4283-9aee-756117db4c62','done');
INSERT INTO "entry" VALUES(1795740745771,1.79574074577130651472e+09,'3ec95eb2-c8ce-4283-9aee-756117db4c62','partly');
INSERT INTO "entry" VALUES(1795740805771,1.79574080577130651466e+09,'3ec95eb2-c8ce-4283-9aee-756117db4c62','nothing');
INSERT INTO "entry" VALUES(1795740865771,1.79574086577130651474e+09,'3ec95eb2-c8ce-4283-9aee-756117db4c62',NULL);
CREATE TABLE feature (name TEXT PRIMARY KEY, version INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO "feature" VALUES('journal',1);
INSERT INTO "feature" VALUES('watch',1);
CREATE TABLE finding (
            host TEXT, server TEXT, subject TEXT, reason TEXT,
            first REAL NOT NULL, announced INTEGER NOT NULL,
            volume TEXT, attachment TEXT, device TEXT,
            explanation TEXT NOT NULL,
            PRIMARY KEY (host, server, subject, reason)) WITHOUT ROWID;
INSERT INTO "finding" VALUES('compute1','44444444-0000-4000-8000-000000000001','11111111-0000-4000-8000-000000000001','volume-available',1.79574068577130651477e+09,1,'22222222-0000-4000-8000-000000000001','33333333-0000-4000-8000-000000000001','/dev/vdb','Cinder says that the volume is available and has no attachment of this server');
INSERT INTO "finding" VALUES('compute1','44444444-0000-4000-8000-000000000002','11111111-0000-4000-8000-000000000002','root-volume-dangling',1.79574428577130651473e+09,0,'22222222-0000-4000-8000-000000000002','33333333-0000-4000-8000-000000000002','/dev/vdb','Cinder says that the volume is available and has no attachment of this server');
CREATE TABLE plan (entry INTEGER PRIMARY KEY, record TEXT NOT NULL);
INSERT INTO "plan" VALUES(1795740685771,'{"server": "3ec95eb2-c8ce-4283-9aee-756117db4c62", "project": "project-0ebe72e398d2", "host": "compute1", "request_id": "req-0f6e765d-3d0d-40f3-afe0-dc9e53eed42b", "plugin": "0.1.0", "nova": "34.0.0", "trigger": "hard_reboot", "actions": [{"reason": "volume-available", "explanation": "Cinder says that the volume is available and has no attachment of this server", "kind": "remove-bdm", "bdm": {"id": 3, "uuid": "e74805dc-89da-4e87-a9c1-c77cc6125499", "instance_uuid": "3ec95eb2-c8ce-4283-9aee-756117db4c62", "source_type": "volume", "destination_type": "volume", "guest_format": null, "device_type": "disk", "disk_bus": "virtio", "boot_index": -1, "device_name": "/dev/vdc", "delete_on_termination": false, "snapshot_id": null, "volume_id": "2cbb8778-4c36-463c-83cf-2a09f9d40b7a", "volume_size": 1, "image_id": null, "no_device": false, "tag": null, "attachment_id": "094072cb-a0f2-44b2-857d-c60cf3336541", "volume_type": null, "encrypted": false, "encryption_secret_uuid": null, "encryption_format": null, "encryption_options": null, "created_at": "2026-11-27 00:51:23.243340+00:00", "updated_at": "2026-11-27 00:51:24.737642+00:00", "deleted_at": null, "deleted": false}, "attachments": []}], "findings": [{"reason": "healthy", "withheld": null, "volume": "524f78e6-5ebb-4de0-9830-82f6493298ae", "attachment": "cea0ad57-d259-4222-a8f2-6bec82808e79", "device": "/dev/vdb", "explanation": "attached to this server"}, {"reason": "volume-available", "withheld": null, "volume": "2cbb8778-4c36-463c-83cf-2a09f9d40b7a", "attachment": "094072cb-a0f2-44b2-857d-c60cf3336541", "device": "/dev/vdc", "explanation": "Cinder says that the volume is available and has no attachment of this server"}]}');
INSERT INTO "plan" VALUES(1795740745771,'{"server": "3ec95eb2-c8ce-4283-9aee-756117db4c62", "project": "project-0ebe72e398d2", "host": "compute1", "request_id": "req-0f6e765d-3d0d-40f3-afe0-dc9e53eed42b", "plugin": "0.1.0", "nova": "34.0.0", "trigger": "hard_reboot", "actions": [{"reason": "volume-available", "explanation": "Cinder says that the volume is available and has no attachment of this server", "kind": "remove-bdm", "bdm": {"id": 3, "uuid": "e74805dc-89da-4e87-a9c1-c77cc6125499", "instance_uuid": "3ec95eb2-c8ce-4283-9aee-756117db4c62", "source_type": "volume", "destination_type": "volume", "guest_format": null, "device_type": "disk", "disk_bus": "virtio", "boot_index": -1, "device_name": "/dev/vdc", "delete_on_termination": false, "snapshot_id": null, "volume_id": "2cbb8778-4c36-463c-83cf-2a09f9d40b7a", "volume_size": 1, "image_id": null, "no_device": false, "tag": null, "attachment_id": "094072cb-a0f2-44b2-857d-c60cf3336541", "volume_type": null, "encrypted": false, "encryption_secret_uuid": null, "encryption_format": null, "encryption_options": null, "created_at": "2026-11-27 00:51:23.243340+00:00", "updated_at": "2026-11-27 00:51:24.737642+00:00", "deleted_at": null, "deleted": false}, "attachments": []}], "findings": [{"reason": "healthy", "withheld": null, "volume": "524f78e6-5ebb-4de0-9830-82f6493298ae", "attachment": "cea0ad57-d259-4222-a8f2-6bec82808e79", "device": "/dev/vdb", "explanation": "attached to this server"}, {"reason": "volume-available", "withheld": null, "volume": "2cbb8778-4c36-463c-83cf-2a09f9d40b7a", "attachment": "094072cb-a0f2-44b2-857d-c60cf3336541", "device": "/dev/vdc", "explanation": "Cinder says that the volume is available and has no attachment of this server"}]}');
INSERT INTO "plan" VALUES(1795740805771,'{"server": "3ec95eb2-c8ce-4283-9aee-756117db4c62", "project": "project-0ebe72e398d2", "host": "compute1", "request_id": "req-0f6e765d-3d0d-40f3-afe0-dc9e53eed42b", "plugin": "0.1.0", "nova": "34.0.0", "trigger": "hard_reboot", "actions": [{"reason": "volume-available", "explanation": "Cinder says that the volume is available and has no attachment of this server", "kind": "remove-bdm", "bdm": {"id": 3, "uuid": "e74805dc-89da-4e87-a9c1-c77cc6125499", "instance_uuid": "3ec95eb2-c8ce-4283-9aee-756117db4c62", "source_type": "volume", "destination_type": "volume", "guest_format": null, "device_type": "disk", "disk_bus": "virtio", "boot_index": -1, "device_name": "/dev/vdc", "delete_on_termination": false, "snapshot_id": null, "volume_id": "2cbb8778-4c36-463c-83cf-2a09f9d40b7a", "volume_size": 1, "image_id": null, "no_device": false, "tag": null, "attachment_id": "094072cb-a0f2-44b2-857d-c60cf3336541", "volume_type": null, "encrypted": false, "encryption_secret_uuid": null, "encryption_format": null, "encryption_options": null, "created_at": "2026-11-27 00:51:23.243340+00:00", "updated_at": "2026-11-27 00:51:24.737642+00:00", "deleted_at": null, "deleted": false}, "attachments": []}], "findings": [{"reason": "healthy", "withheld": null, "volume": "524f78e6-5ebb-4de0-9830-82f6493298ae", "attachment": "cea0ad57-d259-4222-a8f2-6bec82808e79", "device": "/dev/vdb", "explanation": "attached to this server"}, {"reason": "volume-available", "withheld": null, "volume": "2cbb8778-4c36-463c-83cf-2a09f9d40b7a", "attachment": "094072cb-a0f2-44b2-857d-c60cf3336541", "device": "/dev/vdc", "explanation": "Cinder says that the volume is available and has no attachment of this server"}]}');
INSERT INTO "plan" VALUES(1795740865771,'{"server": "3ec95eb2-c8ce-4283-9aee-756117db4c62", "project": "project-0ebe72e398d2", "host": "compute1", "request_id": "req-0f6e765d-3d0d-40f3-afe0-dc9e53eed42b", "plugin": "0.1.0", "nova": "34.0.0", "trigger": "hard_reboot", "actions": [{"reason": "volume-available", "explanation": "Cinder says that the volume is available and has no attachment of this server", "kind": "remove-bdm", "bdm": {"id": 3, "uuid": "e74805dc-89da-4e87-a9c1-c77cc6125499", "instance_uuid": "3ec95eb2-c8ce-4283-9aee-756117db4c62", "source_type": "volume", "destination_type": "volume", "guest_format": null, "device_type": "disk", "disk_bus": "virtio", "boot_index": -1, "device_name": "/dev/vdc", "delete_on_termination": false, "snapshot_id": null, "volume_id": "2cbb8778-4c36-463c-83cf-2a09f9d40b7a", "volume_size": 1, "image_id": null, "no_device": false, "tag": null, "attachment_id": "094072cb-a0f2-44b2-857d-c60cf3336541", "volume_type": null, "encrypted": false, "encryption_secret_uuid": null, "encryption_format": null, "encryption_options": null, "created_at": "2026-11-27 00:51:23.243340+00:00", "updated_at": "2026-11-27 00:51:24.737642+00:00", "deleted_at": null, "deleted": false}, "attachments": []}], "findings": [{"reason": "healthy", "withheld": null, "volume": "524f78e6-5ebb-4de0-9830-82f6493298ae", "attachment": "cea0ad57-d259-4222-a8f2-6bec82808e79", "device": "/dev/vdb", "explanation": "attached to this server"}, {"reason": "volume-available", "withheld": null, "volume": "2cbb8778-4c36-463c-83cf-2a09f9d40b7a", "attachment": "094072cb-a0f2-44b2-857d-c60cf3336541", "device": "/dev/vdc", "explanation": "Cinder says that the volume is available and has no attachment of this server"}]}');
CREATE TABLE process (
            host TEXT PRIMARY KEY, since REAL NOT NULL, identity TEXT NOT NULL,
            problem TEXT NOT NULL, facts TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "process" VALUES('compute1',1.79574068139581346516e+09,'{"pid": 6822}','','{"version": "0.1.0", "nova_version": "34.0.0", "triggers": "start,host_boot,move,delete", "mode": "enforce", "max_removals_per_hour": 32, "audit_interval": 3600}');
CREATE TABLE round (
            host TEXT PRIMARY KEY, succeeded REAL, servers INTEGER,
            volumes INTEGER, requests INTEGER, seconds REAL,
            failed INTEGER NOT NULL, problem TEXT, next REAL NOT NULL)
        WITHOUT ROWID;
INSERT INTO "round" VALUES('compute1',1.79574428577130651473e+09,2,3,1,0.5,1,'Cinder does not answer',1.79575148577130651469e+09);
CREATE TABLE step (
            entry INTEGER, number INTEGER, time REAL NOT NULL,
            name TEXT NOT NULL, outcome TEXT NOT NULL, subject TEXT NOT NULL,
            PRIMARY KEY (entry, number)) WITHOUT ROWID;
INSERT INTO "step" VALUES(1795740685771,1,1.79574068585489892962e+09,'power-off','done','{}');
INSERT INTO "step" VALUES(1795740685771,2,1.79574068603601813315e+09,'second-look','done','{"agreed": 1}');
INSERT INTO "step" VALUES(1795740685771,3,1795740686.10053,'disconnect','done','{"volume": "2cbb8778-4c36-463c-83cf-2a09f9d40b7a", "bdm": "e74805dc-89da-4e87-a9c1-c77cc6125499"}');
INSERT INTO "step" VALUES(1795740685771,4,1.79574068611731076233e+09,'destroy','done','{"bdm": "e74805dc-89da-4e87-a9c1-c77cc6125499", "volume": "2cbb8778-4c36-463c-83cf-2a09f9d40b7a"}');
INSERT INTO "step" VALUES(1795740745771,1,1.79574074577130651472e+09,'power-off','done','{}');
INSERT INTO "step" VALUES(1795740745771,2,1.79574074577130651472e+09,'second-look','failed','{"agreed": 1}');
INSERT INTO "step" VALUES(1795740865771,1,1.79574086577130651474e+09,'power-off','done','{}');
CREATE INDEX entry_server ON entry (server, time);
CREATE INDEX entry_time ON entry (time);
CREATE INDEX charge_account ON charge (account, time, amount);
CREATE INDEX charge_time ON charge (time);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('entry',1795740865771);
COMMIT;
