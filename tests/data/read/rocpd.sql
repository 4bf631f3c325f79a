-- Tables of rocpd with the columns that are read, of rocprofiler-sdk's rocpd_tables.sql, schema version 3.
-- {u} stands for the process.
-- COMMON
CREATE TABLE "rocpd_metadata{u}" (id INTEGER PRIMARY KEY, tag TEXT, value TEXT);
CREATE TABLE "rocpd_string{u}" (id INTEGER PRIMARY KEY, guid TEXT, string TEXT);
CREATE TABLE "rocpd_info_node{u}" (id INTEGER PRIMARY KEY, guid TEXT, hostname TEXT);
CREATE TABLE "rocpd_info_process{u}" (
    id INTEGER PRIMARY KEY, guid TEXT, nid INTEGER, pid INTEGER, environment TEXT);
CREATE TABLE "rocpd_info_agent{u}" (
    id INTEGER PRIMARY KEY, guid TEXT, type TEXT, absolute_index INTEGER, type_index INTEGER,
    name TEXT, product_name TEXT);
CREATE TABLE "rocpd_info_kernel_symbol{u}" (
    id INTEGER PRIMARY KEY, guid TEXT, kernel_name TEXT, display_name TEXT);
CREATE TABLE "rocpd_event{u}" (
    id INTEGER PRIMARY KEY, guid TEXT, category_id INTEGER, stack_id INTEGER,
    parent_stack_id INTEGER, correlation_id INTEGER, extdata TEXT DEFAULT '{{}}');
INSERT INTO "rocpd_string{u}" (id, string) VALUES (1, 'KERNEL_DISPATCH'), (2, 'HIP_RUNTIME_API'),
    (3, 'hipLaunchKernel'), (4, 'MEMORY_COPY'), (5, 'MEMORY_COPY_HOST_TO_DEVICE'), (6, 'RCCL_API'),
    (7, 'ncclAllReduce'), (8, 'MARKER_CORE_API'), (9, 'roctxRangePushA');
INSERT INTO "rocpd_info_node{u}" (id, hostname) VALUES (1, 'node-7');
INSERT INTO "rocpd_info_process{u}" (id, nid, pid, environment) VALUES (77, 1, 77, '{environment}');
INSERT INTO "rocpd_info_agent{u}" (id, type, absolute_index, type_index, name, product_name) VALUES
    (0, 'CPU', 0, 0, 'EPYC', 'EPYC'), (4, 'GPU', 4, 0, 'gfx942', 'AMD Instinct MI300X'),
    (5, 'GPU', 5, 1, 'gfx942', 'AMD Instinct MI300X');
INSERT INTO "rocpd_info_kernel_symbol{u}" (id, kernel_name, display_name) VALUES
    (7, '_Z4gemm.kd', 'gemm(float*) [clone .kd]'), (8, 'other.kd', NULL), (9, 'idle.kd', 'idle');
INSERT INTO "rocpd_event{u}" (id, category_id, stack_id, extdata) VALUES
    (1, 1, 100, '{{}}'), (2, 1, 101, '{{}}'), (3, 2, 100, '{{}}'), (4, 4, 102, '{{}}'),
    (5, 6, 103, '{{}}'), (6, 8, 104, '{{"message": "step 3"}}');
-- INLINE
CREATE TABLE "rocpd_kernel_dispatch{u}" (
    id INTEGER PRIMARY KEY, guid TEXT, nid INTEGER, pid INTEGER, tid INTEGER, agent_id INTEGER,
    kernel_id INTEGER, dispatch_id INTEGER, queue_id INTEGER, stream_id INTEGER, start BIGINT,
    "end" BIGINT, workgroup_size_x INTEGER, workgroup_size_y INTEGER, workgroup_size_z INTEGER,
    grid_size_x INTEGER, grid_size_y INTEGER, grid_size_z INTEGER, event_id INTEGER);
CREATE TABLE "rocpd_memory_copy{u}" (
    id INTEGER PRIMARY KEY, guid TEXT, nid INTEGER, pid INTEGER, tid INTEGER, start BIGINT,
    "end" BIGINT, name_id INTEGER, dst_agent_id INTEGER, src_agent_id INTEGER, size INTEGER,
    queue_id INTEGER, stream_id INTEGER, event_id INTEGER);
CREATE TABLE "rocpd_region{u}" (
    id INTEGER PRIMARY KEY, guid TEXT, nid INTEGER, pid INTEGER, tid INTEGER, start BIGINT,
    "end" BIGINT, name_id INTEGER, event_id INTEGER);
INSERT INTO "rocpd_kernel_dispatch{u}" VALUES
    (1, 'g', 1, 77, 20, 5, 7, 1, 2, 3, 1000, 1500, 64, 1, 1, 1024, 2, 1, 1),
    (2, 'g', 1, 77, 20, 4, 8, 2, 2, 3, 2000, 2001, 64, 1, 1, 65, 1, 1, 2);
INSERT INTO "rocpd_memory_copy{u}" VALUES (1, 'g', 1, 77, 20, 10, 30, 5, 5, 0, 256, NULL, 3, 4);
INSERT INTO "rocpd_region{u}" VALUES (1, 'g', 1, 77, 20, 1, 5, 3, 3),
    (2, 'g', 1, 77, 20, 6, 9, 7, 5),
    (3, 'g', 1, 77, 21, 0, 99, 9, 6);
-- TRACKS
CREATE TABLE "rocpd_track{u}" (
    id INTEGER PRIMARY KEY, guid TEXT, nid INTEGER, pid INTEGER, tid INTEGER, agent_id INTEGER,
    queue_id INTEGER, stream_id INTEGER, name_id INTEGER);
CREATE TABLE "rocpd_timestamp{u}" (
    id INTEGER PRIMARY KEY, guid TEXT, value BIGINT, phase INTEGER, track_id INTEGER);
CREATE TABLE "rocpd_kernel_dispatch{u}" (
    id INTEGER PRIMARY KEY, guid TEXT, track_id INTEGER, kernel_id INTEGER, dispatch_id INTEGER,
    start_id INTEGER, end_id INTEGER, workgroup_size_x INTEGER, workgroup_size_y INTEGER,
    workgroup_size_z INTEGER, grid_size_x INTEGER, grid_size_y INTEGER, grid_size_z INTEGER,
    event_id INTEGER);
CREATE TABLE "rocpd_memory_copy{u}" (
    id INTEGER PRIMARY KEY, guid TEXT, track_id INTEGER, start_id INTEGER, end_id INTEGER,
    name_id INTEGER, dst_agent_id INTEGER, src_agent_id INTEGER, size INTEGER, event_id INTEGER);
CREATE TABLE "rocpd_region{u}" (
    id INTEGER PRIMARY KEY, guid TEXT, track_id INTEGER, name_id INTEGER, start_id INTEGER,
    end_id INTEGER, event_id INTEGER);
INSERT INTO "rocpd_track{u}" VALUES (1, 'g', 1, 77, 20, 5, 2, 3, NULL),
    (2, 'g', 1, 77, 20, 4, 2, 3, NULL), (3, 'g', 1, 77, 20, NULL, NULL, 3, NULL),
    (4, 'g', 1, 77, 21, NULL, NULL, NULL, NULL);
INSERT INTO "rocpd_timestamp{u}" VALUES (1, 'g', 1000, 1, 1), (2, 'g', 1500, 2, 1),
    (3, 'g', 2000, 1, 2), (4, 'g', 2001, 2, 2), (5, 'g', 10, 1, 3), (6, 'g', 30, 2, 3),
    (7, 'g', 1, 1, 3), (8, 'g', 5, 2, 3), (9, 'g', 6, 1, 3), (10, 'g', 9, 2, 3), (11, 'g', 0, 1, 4),
    (12, 'g', 99, 2, 4);
INSERT INTO "rocpd_kernel_dispatch{u}" VALUES (1, 'g', 1, 7, 1, 1, 2, 64, 1, 1, 1024, 2, 1, 1),
    (2, 'g', 2, 8, 2, 3, 4, 64, 1, 1, 65, 1, 1, 2);
INSERT INTO "rocpd_memory_copy{u}" VALUES (1, 'g', 3, 5, 6, 5, 5, 0, 256, 4);
INSERT INTO "rocpd_region{u}" VALUES (1, 'g', 3, 3, 7, 8, 3), (2, 'g', 3, 7, 9, 10, 5),
    (3, 'g', 4, 9, 11, 12, 6);
-- CATEGORIES
CREATE TABLE "rocpd_info_category{u}" (id INTEGER PRIMARY KEY, guid TEXT, name TEXT);
INSERT INTO "rocpd_info_category{u}" (id, name) SELECT id, string FROM "rocpd_string{u}";
UPDATE "rocpd_string{u}" SET string = 'no category' WHERE id IN (1, 2, 4, 6, 8);
